#pragma once
// Attention backends on NVIDIA GPUs: one class over the families of kernels.
#include <memory>

#include "backends/cuda/kernel_choice.h"
#include "fovea/attention_backend.h"

namespace fovea::cuda {

/// `info` outlives it.
std::unique_ptr<AttentionBackend> make_cuda_attention(const BackendInfo& info, FamilyOf family);

/// What make_cuda_attention's workspace_bytes() says: the most that any step of either phase needs.
Result<size_t> cuda_workspace_bytes(const BackendInfo& info, FamilyOf family, const AttentionSpec& spec,
                                    const AttentionLimits& limits);

}  // namespace fovea::cuda
