#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_extend_compact(Launch& l) {
  constexpr KernelKind kSmall = KernelKind::extend_small;
  return launch_extend_list<ExtendCompact<__nv_bfloat16>, kSmall>(l) ||
         launch_extend_list<ExtendCompact<__half>, kSmall>(l) ||
         launch_extend_list<ExtendCompactGeneral<__nv_bfloat16>, kSmall>(l) ||
         launch_extend_list<ExtendCompactGeneral<__half>, kSmall>(l) ||
         launch_extend_list<ExtendCompactEightBit<__nv_bfloat16>, kSmall>(l) ||
         launch_extend_list<ExtendCompactEightBit<__half>, kSmall>(l);
}

}  // namespace fovea::cuda::sm80
