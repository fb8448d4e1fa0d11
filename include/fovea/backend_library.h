#pragma once
// Attention backends that are built outside of Fovea: shared libraries with the C ABI of
// fovea/backend_abi.h.
#include <span>
#include <string>

#include "fovea/attention_backend.h"

namespace fovea {

/// Loads the shared library `file` and adds its backend to `registry`: automatic choice tries it after all
/// existing ones. The library and its row stay until the process ends, even after the registry is destroyed;
/// several registries may have the backend. In a program without CUDA, a CUDA library becomes a row that is
/// not built. Errors: no such file, not a shared library, another version of the ABI, an invalid table, a
/// name that the registry already has. Thread-safe for different registries.
Status load_backend_library(const std::string& file, BackendRegistry& registry);

/// `base` and the backends of `files`, in this order.
Result<BackendRegistry> with_backend_libraries(const BackendRegistry& base,
                                               std::span<const std::string> files);

}  // namespace fovea
