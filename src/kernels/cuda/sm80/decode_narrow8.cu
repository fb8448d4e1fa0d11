#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

bool launch_narrow8(Launch& l) {
  return launch_narrow_list<Narrow8<__nv_bfloat16, KvType::e4m3>>(l) ||
         launch_narrow_list<Narrow8<__half, KvType::e4m3>>(l) ||
         launch_narrow_list<Narrow8<__nv_bfloat16, KvType::e5m2>>(l) ||
         launch_narrow_list<Narrow8<__half, KvType::e5m2>>(l) ||
         launch_narrow_list<Narrow8<__nv_bfloat16, KvType::int8>>(l) ||
         launch_narrow_list<Narrow8<__half, KvType::int8>>(l);
}

}  // namespace fovea::cuda::sm80
