#include "kernels/cuda/sm90/launch-inl.cuh"
#include "kernels/cuda/sm90/x_packed.h"

namespace fovea::cuda::sm90 {

// One for each file of instances.
bool launch_decode64(Launch& l);
bool launch_decode96(Launch& l);
bool launch_decode128(Launch& l);
bool launch_decode192(Launch& l);
bool launch_decode256(Launch& l);
bool launch_decode_packed(Launch& l);

bool launch_decode(Launch& l) {
  if (l.kernel.kind != KernelKind::decode) return false;
  if (is_x_packed(l.params.kv)) {
    l.record.variant = kPackedDecodeVariant;
    return launch_decode_packed(l);
  }
  return launch_decode64(l) || launch_decode96(l) || launch_decode128(l) || launch_decode192(l) ||
         launch_decode256(l);
}

}  // namespace fovea::cuda::sm90
