#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_decode_general(Launch& l) {
  return launch_decode_list<Decode16<__nv_bfloat16, true>>(l) ||
         launch_decode_list<Decode16<__half, true>>(l);
}

}  // namespace fovea::cuda::sm80
