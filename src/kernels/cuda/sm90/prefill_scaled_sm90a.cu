#include "kernels/cuda/sm90/prefill_launch-inl.cuh"
#include "kernels/cuda/sm90/prefill_policies.h"

namespace fovea::cuda::sm90 {

bool launch_prefill_scaled(Launch& l) {
  const auto launch = [&]<class P>() { return launch_prefill_policy<P>(l); };
  return PrefillScaledAll<__nv_bfloat16>::any(launch) || PrefillScaledAll<__half>::any(launch);
}

}  // namespace fovea::cuda::sm90
