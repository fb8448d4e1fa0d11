#pragma once
// KernelInfo of a policy.
#include "kernels/cuda/portable/policy.h"
#include "kernels/cuda/portable/select.h"

namespace fovea::cuda::portable {

/// `kv`: not `same`.
template <class P>
constexpr KernelInfo info_of(KernelKind kind, QueryType q, KvType kv) {
  KernelInfo info;
  info.kind = kind;
  info.q = q;
  info.kv = kv;
  info.head_dim = info.v_head_dim = P::kD;
  info.general = true;
  info.rows = P::kRows;
  info.tile_keys = P::kTileKeys;
  info.split_keys = P::kSplitKeys;
  info.threads = P::kThreads;
  info.shared_bytes = P::kSharedBytes;
  info.blocks_per_sm = P::kBlocksPerSm;
  return info;
}

}  // namespace fovea::cuda::portable
