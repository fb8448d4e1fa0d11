#pragma once
// Linear attention on an NVIDIA GPU. Calls have passed check_call() of kernels/cpu/linear_attention.h; what
// has no kernel is refused with what to change. README.md has the kernels.
#include "device/cuda/cuda_stream.h"
#include "fovea/linear_attention.h"

namespace fovea::cuda {

Status launch_lightning(const LightningAttention& call, CudaStream& stream);
Status launch_gated_delta(const GatedDeltaRule& call, CudaStream& stream);
Status launch_hstu(const HstuAttention& call, CudaStream& stream);

}  // namespace fovea::cuda
