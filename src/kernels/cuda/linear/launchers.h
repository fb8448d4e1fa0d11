#pragma once
// The launches of each family of kernels, over checked parameters.
#include <cuda_runtime_api.h>

#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/linear/wgmma_plan.h"

namespace fovea::cuda {

/// wgmma: sm_90, 16-bit, by a plan for the shape.
Status launch_wgmma_linear(const LinearParams& params, const WgmmaPlan& plan, cudaStream_t stream);

/// mma.sync: sm_80 and later, 16-bit.
Status launch_mma_linear(const LinearParams& params, int multiprocessors, cudaStream_t stream);
Status launch_mma_heads(const HeadLinearParams& params, int multiprocessors, cudaStream_t stream);

/// Quantised weights: mma.sync, or wgmma on sm_90; `widened`: up to kWidenedRows rows.
Status launch_codes_mma(const LinearParams& params, int multiprocessors, cudaStream_t stream);
Status launch_codes_wgmma(const LinearParams& params, int multiprocessors, cudaStream_t stream);
Status launch_codes_widened(const LinearParams& params, int multiprocessors, cudaStream_t stream);

/// fp32 without tensor cores.
Status launch_float_linear(const LinearParams& params, cudaStream_t stream);

}  // namespace fovea::cuda
