#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_extend_general(Launch& l) {
  return launch_extend_list<ExtendGeneral<__nv_bfloat16>, KernelKind::extend>(l) ||
         launch_extend_list<ExtendGeneral<__half>, KernelKind::extend>(l);
}

}  // namespace fovea::cuda::sm80
