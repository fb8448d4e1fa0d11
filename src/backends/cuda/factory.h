#pragma once
// Makes the CUDA backends, in programs that have them.
#include <optional>

#include "fovea/attention_backend.h"

namespace fovea {

/// Makes the backend of `info`, a row with CUDA kernels that outlives it. `tensor_cores` applies to
/// FLASHINFER's decode (AttentionConfig::flashinfer_use_tensor_cores). Must not be called in a program
/// without CUDA (src/backends/no_cuda).
BackendRegistry::Factory cuda_factory(const BackendInfo& info, std::optional<bool> tensor_cores = {});

}  // namespace fovea
