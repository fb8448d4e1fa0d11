#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_extend16(Launch& l) {
  return launch_extend_list<ExtendLarge<__nv_bfloat16>, KernelKind::extend>(l) ||
         launch_extend_list<ExtendLarge<__half>, KernelKind::extend>(l) ||
         launch_extend_list<ExtendSmall<__nv_bfloat16>, KernelKind::extend_small>(l) ||
         launch_extend_list<ExtendSmall<__half>, KernelKind::extend_small>(l);
}

}  // namespace fovea::cuda::sm80
