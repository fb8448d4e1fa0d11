#pragma once
// The operations on an NVIDIA GPU: the kernels of kernels/cuda/{linear,rows,experts,sample}.
#include <memory>

#include "fovea/dtype.h"
#include "fovea/result_fwd.h"
#include "ops/ops.h"

namespace fovea {

/// `device` is make_cuda_device()'s and must outlive the result. Weights have the type of the activations:
/// bf16 or f16 in blocks16, or f32 in rows. Errors: the build has no CUDA; a device or type without kernels.
Result<std::unique_ptr<Ops>> make_cuda_ops(Device& device, DType activations);

}  // namespace fovea
