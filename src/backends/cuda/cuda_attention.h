#pragma once
// Attention backends on NVIDIA GPUs: one class over the families of kernels.
#include <memory>

#include "backends/cuda/kernel_choice.h"
#include "fovea/attention_backend.h"

namespace fovea::cuda {

/// `info` must outlive the backend.
std::unique_ptr<AttentionBackend> make_cuda_attention(const BackendInfo& info, FamilyOf family);

/// workspace_bytes() of make_cuda_attention(): bytes that suffice for any step of either phase.
Result<size_t> cuda_workspace_bytes(const BackendInfo& info, FamilyOf family, const AttentionSpec& spec,
                                    const AttentionLimits& limits);

}  // namespace fovea::cuda
