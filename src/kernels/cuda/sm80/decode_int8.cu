#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_decode_int8(Launch& l) {
  return launch_decode_list<Decode8<__nv_bfloat16, KvType::int8, false>>(l) ||
         launch_decode_list<Decode8<__half, KvType::int8, false>>(l) ||
         launch_decode_list<Decode8<__nv_bfloat16, KvType::int8, true>>(l) ||
         launch_decode_list<Decode8<__half, KvType::int8, true>>(l);
}

}  // namespace fovea::cuda::sm80
