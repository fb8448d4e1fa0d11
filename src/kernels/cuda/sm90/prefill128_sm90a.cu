#include "kernels/cuda/sm90/prefill_launch-inl.cuh"
#include "kernels/cuda/sm90/prefill_policies.h"

namespace fovea::cuda::sm90 {

bool launch_prefill128(Launch& l) {
  return launch_prefill_policy<Prefill128<__nv_bfloat16>>(l) || launch_prefill_policy<Prefill128<__half>>(l);
}

}  // namespace fovea::cuda::sm90
