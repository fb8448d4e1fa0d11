#include "kernels/cuda/merge/merge_test.h"
#include "kernels/cuda/merge/state.h"

namespace fovea::cuda {
namespace {

/// One thread per element of O, one CTA per row.
__global__ void combine_test_kernel(const float* o, const float* lse, int parts, int rows, int dv, float* out,
                                    float* out_lse) {
  const int row = static_cast<int>(blockIdx.x), d = static_cast<int>(threadIdx.x);
  MergeState state;
  float sum = 0.0f;
  for (int i = 0; i < parts; ++i) {
    const int64_t at = static_cast<int64_t>(i) * rows + row;
    const CombineFactors factors = state.combine(lse[at]);
    sum = product(sum, factors.keep);
    if (factors.weight != 0.0f) sum = fmaf(o[at * dv + d], factors.weight, sum);
  }
  out[static_cast<int64_t>(row) * dv + d] = __fdiv_rn(sum, state.divisor());
  if (d == 0) out_lse[row] = state.merged_lse();
}

}  // namespace

void launch_combine_test(const float* o, const float* lse, int parts, int rows, int dv, float* out,
                         float* out_lse, cudaStream_t stream) {
  combine_test_kernel<<<static_cast<unsigned>(rows), static_cast<unsigned>(dv), 0, stream>>>(
      o, lse, parts, rows, dv, out, out_lse);
}

}  // namespace fovea::cuda
