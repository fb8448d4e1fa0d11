#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_narrow16(Launch& l) {
  return launch_narrow_list<Narrow16<__nv_bfloat16, false>>(l) ||
         launch_narrow_list<Narrow16<__half, false>>(l) ||
         launch_narrow_list<Narrow16<__nv_bfloat16, true>>(l) ||
         launch_narrow_list<Narrow16<__half, true>>(l);
}

}  // namespace fovea::cuda::sm80
