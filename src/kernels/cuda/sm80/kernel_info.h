#pragma once
// KernelInfo of a policy.
#include <type_traits>

#include "kernels/cuda/sm80/policies.h"
#include "kernels/cuda/sm80/select.h"

namespace fovea::cuda::sm80 {

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
  info.shared_bytes = P::kSharedBytes;
  info.blocks_per_sm = P::kBlocksPerSm;
  return info;
}

template <class P>
constexpr KernelInfo decode_info() {
  KernelInfo info = common_info<P>();
  info.kind = KernelKind::decode;
  info.kv = P::kKv;
  return info;
}

template <class P>
constexpr KernelInfo narrow_info() {
  KernelInfo info = decode_info<P>();
  info.merges = true;
  return info;
}

template <class P>
constexpr KernelInfo extend_info(KernelKind kind) {
  KernelInfo info = common_info<P>();
  info.kind = kind;
  info.kv = P::kEightBit ? KvType::e4m3 : KvType::same;
  return info;
}

}  // namespace fovea::cuda::sm80
