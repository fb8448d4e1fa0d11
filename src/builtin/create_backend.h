#pragma once
// Creates the selected backend, with backend-specific settings.
#include <memory>

#include "fovea/attention_backend.h"
#include "fovea/attention_config.h"

namespace fovea {

/// The backend of `info`, a row of `registry` (also of its MLA prefill), created by its entry;
/// AttentionConfig::flashinfer_use_tensor_cores is applied to the FLASHINFER of builtin_backends(). Error:
/// the backend is not in this build.
Result<std::unique_ptr<AttentionBackend>> create_backend(const BackendInfo& info,
                                                         const AttentionConfig& config,
                                                         const BackendRegistry& registry);

}  // namespace fovea
