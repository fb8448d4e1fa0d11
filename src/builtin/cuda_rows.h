#pragma once
// The rows of other engines' documents (compat/rows) that the project has CUDA kernels for.
#include <optional>

#include "fovea/backend_info.h"

namespace fovea {

/// `document` as the row of the project's CUDA kernels for its name and version: `capability` is that of
/// these kernels, `documented` the document's, and `absent` is empty. nullopt: there are no such kernels. The
/// result does not depend on how the program was compiled. `document` must outlive the row.
std::optional<BackendInfo> cuda_row(const BackendInfo& document);

/// `document`, a row of MLA prefill (compat/rows), as the row that `backend`, a row of cuda_row(), serves
/// without absorption (unabsorbed_spec()): one for each version of FLASH_ATTN. nullopt: it does not serve it.
std::optional<BackendInfo> cuda_mla_prefill_row(const BackendInfo& document, const BackendInfo& backend);

}  // namespace fovea
