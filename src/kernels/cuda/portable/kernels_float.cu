#include "kernels/cuda/portable/launch-inl.cuh"

namespace fovea::cuda::portable {

bool launch_float(Launch& l) {
  return l.kernel.kind == KernelKind::decode ? launch_list<DecodeFloat>(l) : launch_list<ExtendFloat>(l);
}

}  // namespace fovea::cuda::portable
