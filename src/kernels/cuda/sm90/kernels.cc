#include "kernels/cuda/sm90/kernels.h"

namespace fovea::cuda::sm90 {

std::span<const KernelInfo> decode_kernels() {
  return {};
}

}  // namespace fovea::cuda::sm90
