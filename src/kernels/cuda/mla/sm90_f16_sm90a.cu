#include "kernels/cuda/mla/sm90_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm90_f16(Launch& l) {
  return launch_sm90_kernel<__half>(l);
}

}  // namespace fovea::cuda::mla
