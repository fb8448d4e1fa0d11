#include "kernels/cuda/sm90/decode_launch-inl.cuh"
#include "kernels/cuda/sm90/decode_policies.h"

namespace fovea::cuda::sm90 {

bool launch_decode_packed(Launch& l) {
  const auto launch = [&]<class P>() { return launch_decode_policy<P>(l); };
  return DecodePacked<__nv_bfloat16>::any(launch) || DecodePacked<__half>::any(launch);
}

}  // namespace fovea::cuda::sm90
