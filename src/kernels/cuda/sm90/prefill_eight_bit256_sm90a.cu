#include "kernels/cuda/sm90/prefill_launch-inl.cuh"
#include "kernels/cuda/sm90/prefill_policies.h"

namespace fovea::cuda::sm90 {

bool launch_prefill_eight_bit256(Launch& l) {
  return launch_prefill_policy<PrefillEightBit256<__nv_bfloat16>>(l) ||
         launch_prefill_policy<PrefillEightBit256<__half>>(l);
}

}  // namespace fovea::cuda::sm90
