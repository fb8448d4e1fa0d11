#include "kernels/cuda/linear/wgmma_instances.cuh"

namespace fovea::cuda {

WgmmaKernel wgmma_kernel_bf16(int columns, int groups, bool gated) {
  return wgmma_instance<__nv_bfloat16>(columns, groups, gated);
}

}  // namespace fovea::cuda
