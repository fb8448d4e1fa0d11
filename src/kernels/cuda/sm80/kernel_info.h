#pragma once
// KernelInfo of a policy.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/sm80/policies.h"
#include "kernels/cuda/sm80/select.h"

namespace fovea::cuda::sm80 {

/// Everything except what depends on the ring.
template <class P>
constexpr KernelInfo common_info() {
  KernelInfo info;
  info.q = std::is_same_v<typename P::Q, __half> ? QueryType::f16 : QueryType::bf16;
  info.head_dim = P::kD;
  info.v_head_dim = P::kDv;
  info.general = P::kGeneral;
  info.rows = P::kRows;
  info.tile_keys = P::kTileKeys;
  info.split_keys = P::kSplitKeys;
  info.threads = P::kThreads;
  return info;
}

template <class P>
constexpr KernelInfo decode_info(int limit = kAnySharedBytes) {
  KernelInfo info = common_info<P>();
  info.kind = KernelKind::decode;
  info.kv = P::kKv;
  info.stages = P::stages_within(limit);
  set_shared<P>(info, P::shared_bytes(info.stages) + P::kStaticBytes, limit);
  return info;
}

template <class P>
constexpr KernelInfo narrow_info(int limit = kAnySharedBytes) {
  KernelInfo info = common_info<P>();
  info.kind = KernelKind::decode;
  info.kv = P::kKv;
  info.fused_combine = true;
  set_shared<P>(info, P::kSharedBytes, limit);
  return info;
}

template <class P>
constexpr KernelInfo extend_info(KernelKind kind, int limit = kAnySharedBytes) {
  KernelInfo info = common_info<P>();
  info.kind = kind;
  info.kv = P::kEightBit ? KvType::e4m3 : KvType::same;
  const auto ring = P::ring_within(limit);
  info.stages = ring.slots;
  info.ahead = ring.ahead;
  set_shared<P>(info, P::shared_bytes(ring.slots), limit);
  return info;
}

}  // namespace fovea::cuda::sm80
