#pragma once
// Kernels of the merge tests.
#include <cuda_runtime_api.h>

namespace fovea::cuda {

/// Combines o [parts, rows, dv] and lse [parts, rows] one part after another (MergeState::combine).
void launch_combine_test(const float* o, const float* lse, int parts, int rows, int dv, float* out,
                         float* out_lse, cudaStream_t stream);

}  // namespace fovea::cuda
