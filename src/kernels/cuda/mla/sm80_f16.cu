#include "kernels/cuda/mla/sm80_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm80_f16(Launch& l) {
  return launch_sm80_policy<Sm80Policy<__half, KvType::same>>(l) ||
         launch_sm80_policy<Sm80Policy<__half, KvType::e4m3>>(l) ||
         launch_sm80_policy<Sm80Policy<__half, KvType::same, kSmallD>>(l) ||
         launch_sm80_policy<Sm80Policy<__half, KvType::e4m3, kSmallD>>(l);
}

}  // namespace fovea::cuda::mla
