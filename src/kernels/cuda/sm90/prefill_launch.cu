#include "kernels/cuda/sm90/launch-inl.cuh"

namespace fovea::cuda::sm90 {

// One for each file of instances.
bool launch_prefill64(Launch& l);
bool launch_prefill96(Launch& l);
bool launch_prefill128(Launch& l);
bool launch_prefill192(Launch& l);
bool launch_prefill256(Launch& l);
bool launch_prefill_scaled(Launch& l);

bool launch_prefill(Launch& l) {
  if (l.kernel.kind != KernelKind::extend) return false;
  if (l.kernel.kv == KvType::int8) return launch_prefill_scaled(l);
  return launch_prefill64(l) || launch_prefill96(l) || launch_prefill128(l) || launch_prefill192(l) ||
         launch_prefill256(l);
}

}  // namespace fovea::cuda::sm90
