#pragma once
// The decode policies that are compiled.
#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/sm90/decode_policy.h"

namespace fovea::cuda::sm90 {

template <class T>
using Decode64 = PolicyList<DecodePolicy<DecodeShape{.head_dim = 64,
                                                     .v_head_dim = 64,
                                                     .rows = 24,
                                                     .key_groups = 8,
                                                     .tile_keys = 128,
                                                     .stages = 6,
                                                     .chunk_keys = 1024},
                                         T>,
                            DecodePolicy<DecodeShape{.head_dim = 64,
                                                     .v_head_dim = 64,
                                                     .kv = KvType::e4m3,
                                                     .rows = 24,
                                                     .key_groups = 8,
                                                     .tile_keys = 128,
                                                     .stages = 8,
                                                     .chunk_keys = 2048},
                                         T>>;
template <class T>
using Decode96 = PolicyList<DecodePolicy<
    DecodeShape{
        .head_dim = 96, .v_head_dim = 96, .key_groups = 8, .tile_keys = 128, .stages = 4, .chunk_keys = 512},
    T>>;
template <class T>
using Decode128 = PolicyList<DecodePolicy<DecodeShape{.head_dim = 128,
                                                      .v_head_dim = 128,
                                                      .rows = 24,
                                                      .key_groups = 8,
                                                      .tile_keys = 128,
                                                      .stages = 3,
                                                      .chunk_keys = 512},
                                          T>,
                             DecodePolicy<DecodeShape{.head_dim = 128,
                                                      .v_head_dim = 128,
                                                      .kv = KvType::e4m3,
                                                      .rows = 24,
                                                      .key_groups = 8,
                                                      .tile_keys = 128,
                                                      .stages = 6,
                                                      .chunk_keys = 1024},
                                          T>>;
template <class T>
using Decode192 = PolicyList<DecodePolicy<
    DecodeShape{
        .head_dim = 192, .v_head_dim = 128, .key_groups = 4, .tile_keys = 64, .stages = 5, .chunk_keys = 512},
    T>>;
template <class T>
using Decode256 = PolicyList<DecodePolicy<DecodeShape{.head_dim = 256,
                                                      .v_head_dim = 256,
                                                      .key_groups = 4,
                                                      .value_parts = 2,
                                                      .tile_keys = 64,
                                                      .stages = 3,
                                                      .chunk_keys = 256},
                                          T>,
                             DecodePolicy<DecodeShape{.head_dim = 256,
                                                      .v_head_dim = 256,
                                                      .kv = KvType::e4m3,
                                                      .key_groups = 4,
                                                      .value_parts = 2,
                                                      .tile_keys = 64,
                                                      .stages = 6,
                                                      .chunk_keys = 512},
                                          T>>;

/// Of x-packed pages: the same sums in the same order.
template <class T>
using DecodePacked = PolicyList<DecodePolicy<DecodeShape{.head_dim = 64,
                                                         .v_head_dim = 64,
                                                         .rows = 24,
                                                         .key_groups = 8,
                                                         .tile_keys = 128,
                                                         .stages = 6,
                                                         .chunk_keys = 1024,
                                                         .x_packed = true},
                                             T>,
                                DecodePolicy<DecodeShape{.head_dim = 128,
                                                         .v_head_dim = 128,
                                                         .rows = 24,
                                                         .key_groups = 8,
                                                         .tile_keys = 128,
                                                         .stages = 3,
                                                         .chunk_keys = 512,
                                                         .x_packed = true},
                                             T>>;

/// Calls f.template operator()<P>() for all of a query type until one returns true.
template <class T, class F>
constexpr bool any_decode(F&& f) {
  return Decode64<T>::any(f) || Decode96<T>::any(f) || Decode128<T>::any(f) || Decode192<T>::any(f) ||
         Decode256<T>::any(f);
}

}  // namespace fovea::cuda::sm90
