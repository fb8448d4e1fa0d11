#include "kernels/cuda/mla/sm90_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm90_sparse(Launch& l) {
  return l.kernel.kv == KvType::same ? launch_sm90_kernel<__nv_bfloat16, KeySource::records>(l)
                                     : launch_sm90_kernel<__nv_bfloat16, KeySource::ds_mla>(l);
}

}  // namespace fovea::cuda::mla
