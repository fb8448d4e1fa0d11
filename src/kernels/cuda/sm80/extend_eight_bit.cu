#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_extend_eight_bit(Launch& l) {
  return launch_extend_list<ExtendEightBit<__nv_bfloat16>, KernelKind::extend>(l) ||
         launch_extend_list<ExtendEightBit<__half>, KernelKind::extend>(l);
}

}  // namespace fovea::cuda::sm80
