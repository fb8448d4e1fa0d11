#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_decode_e5m2(Launch& l) {
  return launch_decode_list<Decode8<__nv_bfloat16, KvType::e5m2, false>>(l) ||
         launch_decode_list<Decode8<__half, KvType::e5m2, false>>(l) ||
         launch_decode_list<Decode8<__nv_bfloat16, KvType::e5m2, true>>(l) ||
         launch_decode_list<Decode8<__half, KvType::e5m2, true>>(l);
}

}  // namespace fovea::cuda::sm80
