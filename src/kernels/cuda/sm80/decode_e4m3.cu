#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_decode_e4m3(Launch& l) {
  return launch_decode_list<Decode8<__nv_bfloat16, KvType::e4m3, false>>(l) ||
         launch_decode_list<Decode8<__half, KvType::e4m3, false>>(l) ||
         launch_decode_list<Decode8<__nv_bfloat16, KvType::e4m3, true>>(l) ||
         launch_decode_list<Decode8<__half, KvType::e4m3, true>>(l);
}

}  // namespace fovea::cuda::sm80
