#include "kernels/cuda/mla/sm90_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm90_bf16(Launch& l) {
  return launch_sm90_kernel<__nv_bfloat16>(l);
}

}  // namespace fovea::cuda::mla
