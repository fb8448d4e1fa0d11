#include "kernels/cuda/mla/sm90_launch-inl.cuh"

namespace fovea::cuda::mla {

bool launch_sm90_sparse(Launch& l) {
  if (l.kernel.kv == KvType::same) return launch_sm90_kernel<__nv_bfloat16, KeySource::records>(l);
  // Row tiles of a token are neighbours among the items.
  const uint32_t tiles = (l.params.group.divisor + Sm90Policy::kRows - 1) / Sm90Policy::kRows;
  return tiles % 2 == 0 ? launch_sm90_kernel<__nv_bfloat16, KeySource::ds_mla_pairs>(l)
                        : launch_sm90_kernel<__nv_bfloat16, KeySource::ds_mla>(l);
}

}  // namespace fovea::cuda::mla
