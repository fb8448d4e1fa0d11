#include "kernels/cuda/portable/launch-inl.cuh"

namespace fovea::cuda::portable {

bool launch_f16(Launch& l) {
  return l.kernel.kind == KernelKind::decode ? launch_list<Decode<__half>>(l)
                                             : launch_list<Extend<__half>>(l);
}

}  // namespace fovea::cuda::portable
