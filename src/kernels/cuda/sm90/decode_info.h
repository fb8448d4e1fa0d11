#pragma once
// KernelInfo of a decode policy. Host code, without CUDA.
#include "kernels/cuda/sm90/decode_policy.h"
#include "kernels/cuda/sm90/select.h"

namespace fovea::cuda::sm90 {

/// One kernel serves all masks, so a policy is listed with `general` false and true. A policy of x-packed
/// pages has the KernelInfo of the one of strided pages: launch() chooses between them by the strides.
template <class P>
constexpr KernelInfo decode_info(bool general) {
  KernelInfo info;
  info.kind = KernelKind::decode;
  info.q = std::is_same_v<typename P::Q, __half> ? QueryType::f16 : QueryType::bf16;
  info.kv = P::kKv;
  info.head_dim = P::kD;
  info.v_head_dim = P::kDv;
  info.general = general;
  info.rows = P::kRows;
  info.tile_keys = P::kTileKeys;
  info.split_keys = P::kChunkKeys;
  info.fused_combine = true;
  info.threads = P::kThreads;
  info.shared_bytes = P::kPacked ? P::Plain::kSharedBytes : P::kSharedBytes;
  info.blocks_per_sm = 1;
  return info;
}

template <class P>
constexpr bool is_decode(const KernelInfo& kernel) {
  return kernel == decode_info<P>(false) || kernel == decode_info<P>(true);
}

}  // namespace fovea::cuda::sm90
