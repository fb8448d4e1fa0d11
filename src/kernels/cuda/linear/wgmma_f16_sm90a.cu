#include "kernels/cuda/linear/wgmma_instances.cuh"

namespace fovea::cuda {

WgmmaKernel wgmma_kernel_f16(int columns, int groups, bool gated) {
  return wgmma_instance<__half>(columns, groups, gated);
}

}  // namespace fovea::cuda
