#pragma once
// The decode policies that are compiled.
#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/sm90/decode_policy.h"

namespace fovea::cuda::sm90 {

//             D, Dv, Q, KV, row tiles, key groups, value parts, tile, stages, chunk
template <class T>
using Decode64 = PolicyList<DecodePolicy<64, 64, T, KvType::same, 1, 8, 1, 128, 6, 1024>,
                            DecodePolicy<64, 64, T, KvType::e4m3, 1, 8, 1, 128, 8, 2048>>;
template <class T>
using Decode96 = PolicyList<DecodePolicy<96, 96, T, KvType::same, 1, 8, 1, 128, 4, 512>>;
template <class T>
using Decode128 = PolicyList<DecodePolicy<128, 128, T, KvType::same, 1, 8, 1, 128, 3, 512>,
                             DecodePolicy<128, 128, T, KvType::e4m3, 1, 8, 1, 128, 6, 1024>>;
template <class T>
using Decode192 = PolicyList<DecodePolicy<192, 128, T, KvType::same, 1, 4, 1, 64, 5, 512>>;
template <class T>
using Decode256 = PolicyList<DecodePolicy<256, 256, T, KvType::same, 1, 4, 2, 64, 3, 256>,
                             DecodePolicy<256, 256, T, KvType::e4m3, 1, 4, 2, 64, 6, 512>>;

/// Calls f.template operator()<P>() for all of a query type until one returns true.
template <class T, class F>
constexpr bool any_decode(F&& f) {
  return Decode64<T>::any(f) || Decode96<T>::any(f) || Decode128<T>::any(f) || Decode192<T>::any(f) ||
         Decode256<T>::any(f);
}

}  // namespace fovea::cuda::sm90
