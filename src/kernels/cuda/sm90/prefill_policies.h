#pragma once
// The prefill policies that are compiled: one for each head size, whatever the mask.
#include "kernels/cuda/common/policy_list.h"
#include "kernels/cuda/sm90/prefill_policy.h"

namespace fovea::cuda::sm90 {

template <class T>
using Prefill64 = PrefillPolicy<
    PrefillShape{
        .head_dim = 64, .v_head_dim = 64, .consumers = 3, .tile_keys = 128, .stages = 4, .query_stages = 2},
    T>;
template <class T>
using Prefill96 = PrefillPolicy<PrefillShape{.head_dim = 96,
                                             .v_head_dim = 96,
                                             .consumers = 3,
                                             .tile_keys = 96,
                                             .stages = 3,
                                             .query_stages = 1,
                                             .delayed_store = true},
                                T>;
template <class T>
using Prefill128 = PrefillPolicy<PrefillShape{.head_dim = 128,
                                              .v_head_dim = 128,
                                              .consumers = 3,
                                              .tile_keys = 80,
                                              .stages = 4,
                                              .query_stages = 1,
                                              .delayed_store = true},
                                 T>;
template <class T>
using Prefill192 = PrefillPolicy<PrefillShape{.head_dim = 192,
                                              .v_head_dim = 128,
                                              .consumers = 3,
                                              .tile_keys = 80,
                                              .stages = 3,
                                              .query_stages = 1,
                                              .delayed_store = true,
                                              .own_pace = true},
                                 T>;
template <class T>
using Prefill256 = PrefillPolicy<PrefillShape{.head_dim = 256,
                                              .v_head_dim = 256,
                                              .consumers = 2,
                                              .tile_keys = 80,
                                              .stages = 2,
                                              .query_stages = 1,
                                              .ping_pong = true},
                                 T>;

// For int8 caches, which have scales of each token.
template <class T>
using PrefillScaled64 = PrefillTokenScalesPolicy<
    PrefillShape{
        .head_dim = 64, .v_head_dim = 64, .consumers = 3, .tile_keys = 96, .stages = 4, .query_stages = 2},
    T>;
template <class T>
using PrefillScaled128 = PrefillTokenScalesPolicy<PrefillShape{.head_dim = 128,
                                                               .v_head_dim = 128,
                                                               .consumers = 3,
                                                               .tile_keys = 80,
                                                               .stages = 4,
                                                               .query_stages = 1,
                                                               .delayed_store = true},
                                                  T>;

template <class T>
using PrefillScaledAll = PolicyList<PrefillScaled64<T>, PrefillScaled128<T>>;

template <class T>
using PrefillAll = PolicyList<Prefill64<T>, Prefill96<T>, Prefill128<T>, Prefill192<T>, Prefill256<T>>;

}  // namespace fovea::cuda::sm90
