#pragma once
// Attention backends that are built outside of Fovea: shared libraries with the C ABI of
// fovea/backend_abi.h.
#include <span>
#include <string>

#include "fovea/attention_backend.h"

namespace fovea {

/// Loads the shared library `file` and adds its backend to `registry`: automatic choice tries it after all
/// that are there. The library stays loaded until the process ends, and the row lives as long, also that of a
/// registry that is gone; several registries may have the backend. A library for CUDA is a row that is not
/// built where this program has no CUDA. Errors: no such file, no shared library, another version of the ABI,
/// a table that is not valid, a name that the registry has. Thread-safe for different registries.
Status load_backend_library(const std::string& file, BackendRegistry& registry);

/// `base` and the backends of `files`, in this order.
Result<BackendRegistry> with_backend_libraries(const BackendRegistry& base,
                                               std::span<const std::string> files);

}  // namespace fovea
