#include "kernels/cuda/portable/launch-inl.cuh"

namespace fovea::cuda::portable {

bool launch_bf16(Launch& l) {
  return l.kernel.kind == KernelKind::decode ? launch_list<Decode<__nv_bfloat16>>(l)
                                             : launch_list<Extend<__nv_bfloat16>>(l);
}

}  // namespace fovea::cuda::portable
