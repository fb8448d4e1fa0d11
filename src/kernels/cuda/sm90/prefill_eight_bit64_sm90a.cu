#include "kernels/cuda/sm90/prefill_launch-inl.cuh"
#include "kernels/cuda/sm90/prefill_policies.h"

namespace fovea::cuda::sm90 {

bool launch_prefill_eight_bit64(Launch& l) {
  return launch_prefill_policy<PrefillEightBit64<__nv_bfloat16, KvType::e4m3>>(l) ||
         launch_prefill_policy<PrefillEightBit64<__half, KvType::e4m3>>(l) ||
         launch_prefill_policy<PrefillEightBit64<__nv_bfloat16, KvType::int8>>(l) ||
         launch_prefill_policy<PrefillEightBit64<__half, KvType::int8>>(l);
}

}  // namespace fovea::cuda::sm90
