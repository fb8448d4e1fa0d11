#pragma once
// The prefill policies that are compiled: one for each head size, whatever the mask is.
#include "kernels/cuda/sm90/prefill_policy.h"

namespace fovea::cuda::sm90 {

template <class... P>
struct PrefillList {
  /// Calls f.template operator()<P>() in order until one returns true.
  template <class F>
  static constexpr bool any(F&& f) {
    return (f.template operator()<P>() || ...);
  }
};

//                        D, Dv, Q, consumers, keys, stages, query buffers, ping-pong, held, late end
template <class T>
using Prefill64 = PrefillPolicy<64, 64, T, 3, 128, 4, 2, false, false, false>;
template <class T>
using Prefill96 = PrefillPolicy<96, 96, T, 3, 96, 3, 1, false, false, true>;
template <class T>
using Prefill128 = PrefillPolicy<128, 128, T, 3, 80, 4, 1, false, false, true>;
template <class T>
using Prefill192 = PrefillPolicy<192, 128, T, 3, 80, 3, 1, false, false, true>;
template <class T>
using Prefill256 = PrefillPolicy<256, 256, T, 2, 80, 2, 1, true, false, false>;

template <class T>
using PrefillAll = PrefillList<Prefill64<T>, Prefill96<T>, Prefill128<T>, Prefill192<T>, Prefill256<T>>;

}  // namespace fovea::cuda::sm90
