#pragma once
// Makes what was selected, with the settings that are a backend's own.
#include <memory>

#include "fovea/attention_backend.h"

namespace fovea {

/// The backend of `info`, a row of `registry`: as its entry makes it, but for
/// AttentionConfig::flashinfer_use_tensor_cores, which is builtin_backends()' own FLASHINFER's. Error: it is
/// not in this build.
Result<std::unique_ptr<AttentionBackend>> create_backend(const BackendInfo& info,
                                                         const AttentionConfig& config,
                                                         const BackendRegistry& registry);

}  // namespace fovea
