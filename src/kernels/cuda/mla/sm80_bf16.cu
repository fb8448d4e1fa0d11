#include "kernels/cuda/mla/sm80_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm80_bf16(Launch& l) {
  return launch_sm80_policy<Sm80Policy<__nv_bfloat16, KvType::same>>(l) ||
         launch_sm80_policy<Sm80Policy<__nv_bfloat16, KvType::e4m3>>(l) ||
         launch_sm80_policy<Sm80Policy<__nv_bfloat16, KvType::same, kSmallD>>(l) ||
         launch_sm80_policy<Sm80Policy<__nv_bfloat16, KvType::e4m3, kSmallD>>(l);
}

}  // namespace fovea::cuda::mla
