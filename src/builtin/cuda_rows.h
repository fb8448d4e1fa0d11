#pragma once
// The rows of other engines' documents (compat/rows) that the project has CUDA kernels for.
#include <optional>

#include "fovea/backend_info.h"

namespace fovea {

/// `document` as the row of the project's CUDA kernels for its name and version: `capability` is that of
/// these kernels, `documented` the document's, and `absent` is empty. nullopt: there are no such kernels. The
/// result does not depend on how the program was compiled. `document` must outlive the row.
std::optional<BackendInfo> cuda_row(const BackendInfo& document);

}  // namespace fovea
