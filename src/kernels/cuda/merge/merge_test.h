#pragma once
// Kernels of the merge tests.
#include <cuda_runtime_api.h>

namespace fovea::cuda {

/// Folds o [parts, rows, dv] and lse [parts, rows] part after part, as an attention kernel does with its
/// chunks.
void launch_fold_test(const float* o, const float* lse, int parts, int rows, int dv, float* out,
                      float* out_lse, cudaStream_t stream);

}  // namespace fovea::cuda
