#include "kernels/cuda/experts/codes_small.cuh"

namespace fovea::cuda {

Status launch_grouped_small_codes(const GroupedProduct& p, bool gated, const GroupedSize& size,
                                  cudaStream_t stream) {
  if (p.weights.code == WeightCode::mxfp4)
    return launch_small_codes<WeightCode::mxfp4, false>(p, gated, size, stream);
  return p.weights.block_scales ? launch_small_codes<WeightCode::e4m3, true>(p, gated, size, stream)
                                : launch_small_codes<WeightCode::e4m3, false>(p, gated, size, stream);
}

}  // namespace fovea::cuda
