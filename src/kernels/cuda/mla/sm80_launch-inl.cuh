#pragma once
#include "kernels/cuda/mla/launch-inl.cuh"
#include "kernels/cuda/mla/sm80_kernel.cuh"

namespace fovea::cuda::mla {

template <class P>
bool launch_sm80_policy(Launch& l) {
  if (l.kernel.q != query_type<typename P::Q>() || l.kernel.kv != P::kKv || l.kernel.head_dim != P::kD)
    return false;
  static std::atomic<bool> prepared[64];
  prepare(sm80_kernel<P>, P::shared_bytes(P::kMostGroups), prepared, l);
  if (l.ok())
    queue(sm80_kernel<P>, l.params,
          std::min<int64_t>(l.max_items, int64_t{l.multiprocessors} * l.kernel.blocks_per_sm),
          l.kernel.threads, l.kernel.shared_bytes, l, "launch of an MLA kernel");
  return true;
}

}  // namespace fovea::cuda::mla
