#include "kernels/cuda/mla/sm80_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm80_ds_mla(Launch& l) {
  return launch_sm80_policy<Sm80Policy<__nv_bfloat16, KvType::e4m3, kD, true>>(l);
}

}  // namespace fovea::cuda::mla
