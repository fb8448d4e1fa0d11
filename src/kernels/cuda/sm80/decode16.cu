#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_decode16(Launch& l) {
  return launch_decode_list<Decode16<__nv_bfloat16, false>>(l) ||
         launch_decode_list<Decode16<__half, false>>(l);
}

}  // namespace fovea::cuda::sm80
