#pragma once
// KernelInfo of a prefill policy. Host code, without CUDA.
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/sm90/select.h"

namespace fovea::cuda::sm90 {

/// One kernel serves all masks, so a policy is listed with `general` false and true. `kv`: of the cache,
/// which is widened before the kernel reads it where it has 8 bits.
template <class P>
constexpr KernelInfo prefill_info(bool general, KvType kv = P::kTokenScales ? KvType::int8 : KvType::same) {
  KernelInfo info;
  info.kind = KernelKind::extend;
  info.q = std::is_same_v<typename P::Q, __half> ? QueryType::f16 : QueryType::bf16;
  info.kv = kv;
  info.head_dim = P::kD;
  info.v_head_dim = P::kDv;
  info.general = general;
  info.rows = P::kRows;
  info.tile_keys = P::kTileKeys;
  info.split_keys = P::kSplitKeys;
  info.threads = P::kThreads;
  info.shared_bytes = P::kSharedBytes;
  info.blocks_per_sm = 1;
  return info;
}

template <class P>
constexpr bool is_prefill(const KernelInfo& kernel) {
  return kernel == prefill_info<P>(false) || kernel == prefill_info<P>(true);
}

}  // namespace fovea::cuda::sm90
