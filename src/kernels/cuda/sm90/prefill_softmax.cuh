#pragma once
// Online softmax of a tile's scores in the registers of a consumer warpgroup. It has 64 rows: thread (g, q)
// of a warp has rows g and g + 8 of the warp's 16 and, of every 8 keys, keys 2 q and 2 q + 1.
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/sm90/prefill_params.h"
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/sm90/row_keys.cuh"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda::sm90 {

/// Row maxima are updated lazily: row_max may lie this far below the largest score of the row, in log2 units.
/// A factor of 2^8 costs no bit of the sum, and O need not be rescaled in nearly every tile. Whether a row is
/// rescaled depends on its own scores only.
inline constexpr int kRescaleThresholdLog2 = 8;
/// row_max of a row that has seen no key. Unlike -inf, differences with it are never NaN.
inline constexpr float kNegInfFinite = -0x1.fffffep+127f;
/// A SoftmaxState::rescale_threshold that every score reaches.
inline constexpr int kAlwaysCheck = INT32_MIN;

/// Softmax state of a thread's two rows, in log2 units. row_sum is this lane's share.
struct SoftmaxState {
  float row_max[2], row_sum[2];
  /// Bits of the raw score from which on row_max has to be checked. With a soft cap, bits are compared as
  /// unsigned integers: all scores below 0 reach the threshold, and those that do not are small.
  int rescale_threshold[2];

  /// `threshold`: one that all scores reach.
  FOVEA_DEVICE void reset(int threshold) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      row_max[h] = kNegInfFinite, row_sum[h] = 0.0f, rescale_threshold[h] = threshold;
  }
};

FOVEA_DEVICE KeyInterval keys_of_row(const AttentionParams& p, const WorkItem& item, int packed_row) {
  // Rows past the end of the sequence see what its last row sees.
  const int token = min(p.group.quotient(packed_row), item.n_q - 1);
  return seen_keys(p.mask, item, token + item.n_k - item.n_q);
}

/// The keys that all rows of a consumer see; `packed_row` is the first of them. Both bounds never fall from
/// one row to the next, so the first and the last row determine them.
FOVEA_DEVICE KeyInterval keys_of_all_rows(const AttentionParams& p, const WorkItem& item, int packed_row) {
  const KeyInterval keys = keys_of_row(p, item, packed_row + (threadIdx.x % 2 == 1 ? 63 : 0));
  return {__reduce_max_sync(~0u, keys.first), __reduce_min_sync(~0u, keys.last)};
}

/// Sets the scores of keys that a row does not see to -inf; the tile begins at key0.
template <int kCount>
FOVEA_DEVICE void apply_mask(float (&s)[kCount], const AttentionParams& p, const WorkItem& item,
                             int packed_row, int key0) {
  const int first = key0 + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const KeyInterval keys = keys_of_row(p, item, packed_row + 8 * h);
    const int from = keys.first - first, past = keys.last - first;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int key = i / 2 * 8 + i % 2;
      float& x = s[i / 2 * 4 + 2 * h + i % 2];
      x = key < from || key >= past ? -INFINITY : x;
    }
  }
}

/// SoftmaxState::rescale_threshold of scores that `scale` converts to log2 units. Slightly below the exact
/// threshold, so that no rounding decides whether a row is rescaled.
template <int kThreshold = kRescaleThresholdLog2>
FOVEA_DEVICE int rescale_threshold_of(float row_max, float scale) {
  const float limit = row_max + kThreshold - 1e-6f * (fabsf(row_max) + 16.0f);
  return limit > 0.0f ? __float_as_int(__fdividef(limit, scale)) : kAlwaysCheck;
}

/// Updates the row max of rows where the maximum grew past the rescale threshold; `lane_max`: this lane's
/// maxima. Returns whether a row of the warp changed; O must then be rescaled by `factor`. row_max becomes
/// the maximum less kOffset.
template <int kThreshold = kRescaleThresholdLog2, int kOffset = 0>
FOVEA_DEVICE bool update_row_max(const float (&lane_max)[2], SoftmaxState& state, float (&factor)[2]) {
  const bool exceeded =
      lane_max[0] - kThreshold > state.row_max[0] || lane_max[1] - kThreshold > state.row_max[1];
  const bool rescale = __any_sync(~0u, exceeded) != 0;
  if (rescale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float maximum = quad_max(lane_max[h]), old = state.row_max[h];
      if (maximum - kThreshold > old) state.row_max[h] = maximum - kOffset;
      factor[h] = exp2_approx(old - state.row_max[h]);
      state.row_sum[h] *= factor[h];
    }
  }
  return rescale;
}

/// The bits of a lane's largest score in each row if it is >= 0; otherwise a value with the sign bit set. As
/// signed integers, the bits of scores >= 0 are ordered, and all scores below 0 come before them: the largest
/// of three takes one instruction.
template <int kCount>
FOVEA_DEVICE void max_score_bits(const float (&s)[kCount], int (&bits)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int a = __float_as_int(s[2 * h]), b = __float_as_int(s[2 * h + 1]);
#pragma unroll
    for (int i = 1; i < kCount / 4; ++i)
      (i % 2 == 1 ? a : b) = __vimax3_s32(i % 2 == 1 ? a : b, __float_as_int(s[4 * i + 2 * h]),
                                          __float_as_int(s[4 * i + 2 * h + 1]));
    bits[h] = max(a, b);
  }
}
/// The largest score itself, of either sign, from its max_score_bits. Among scores below 0 the largest has
/// the smallest bits.
template <int kCount>
FOVEA_DEVICE float max_score(const float (&s)[kCount], int h, int bits) {
  if (bits < 0) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
      bits = __vimin3_s32(bits, __float_as_int(s[4 * i + 2 * h]), __float_as_int(s[4 * i + 2 * h + 1]));
  }
  return __int_as_float(bits);
}

/// s -> 2^(scale s - row_max), added to row_sum. Returns what update_row_max does.
template <int kThreshold = kRescaleThresholdLog2, int kOffset = 0, int kCount>
FOVEA_DEVICE bool online_softmax(float (&s)[kCount], SoftmaxState& state, float scale, float (&factor)[2]) {
  int bits[2];
  max_score_bits(s, bits);
  bool rescale = false;
  factor[0] = factor[1] = 1.0f;
  if (__any_sync(~0u, bits[0] >= state.rescale_threshold[0] || bits[1] >= state.rescale_threshold[1]))
      [[unlikely]] {
    const float lane_max[2] = {max_score(s, 0, bits[0]) * scale, max_score(s, 1, bits[1]) * scale};
    rescale = update_row_max<kThreshold, kOffset>(lane_max, state, factor);
    if (rescale) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        state.rescale_threshold[h] = rescale_threshold_of<kThreshold>(state.row_max[h], scale);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float &a = s[4 * i + 2 * h], &b = s[4 * i + 2 * h + 1];
      a = exp2_approx(fmaf(a, scale, -state.row_max[h]));
      b = exp2_approx(fmaf(b, scale, -state.row_max[h]));
      state.row_sum[h] += a + b;
    }
  return rescale;
}

/// 1 / (2^(2 x scale) + 1): tanh(x scale) = 1 - 2 / (2^(2 x scale) + 1).
FOVEA_DEVICE float softcap_reciprocal(const PrefillSoftcap& softcap, float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(exp2_approx(x * softcap.scale) + 1.0f));
  return reciprocal;
}
/// Capped score / x, in log2 units, for x that PrefillSoftcap defines as small.
FOVEA_DEVICE float softcap_polynomial(const PrefillSoftcap& softcap, float x) {
  const float squared = x * x;
  return fmaf(fmaf(softcap.polynomial[2], squared, softcap.polynomial[1]), squared, softcap.polynomial[0]);
}

/// Whether all of a lane's scores of a row lie above the negative of `small` too.
template <int kCount>
FOVEA_DEVICE bool above_negative_bound(const float (&s)[kCount], int h, int small) {
  unsigned low = 0;  // as unsigned integers, bits of scores below 0 are ordered and exceed all others
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
    low = __vimax3_u32(low, __float_as_uint(s[4 * i + 2 * h]), __float_as_uint(s[4 * i + 2 * h + 1]));
  return low <= (0x80000000u | static_cast<unsigned>(small));
}

/// For capped scores where some lane's largest has reached the rescale threshold: determines in `small`
/// whether tanh may be the polynomial, and sets row_max. Returns what update_row_max does.
template <int kCount>
FOVEA_DEVICE bool update_softcap_row_max(const float (&s)[kCount], const int (&bits)[2], SoftmaxState& state,
                                         const PrefillSoftcap& softcap, int keys, bool (&small)[2],
                                         float (&factor)[2]) {
  float capped[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool large_sum =
        state.row_max[h] >= 0.0f && state.row_sum[h] >= static_cast<float>(keys) * softcap.min_mean_weight;
    small[h] = bits[h] <= softcap.small &&
               (softcap.two_sided ? above_negative_bound(s, h, softcap.small) : bits[h] >= 0 || large_sum);
    const float x = max_score(s, h, bits[h]);
    const float large =
        x == -INFINITY ? x : fmaf(-2.0f * softcap.limit, softcap_reciprocal(softcap, x), softcap.limit);
    capped[h] = small[h] ? x * softcap_polynomial(softcap, x) : large;
  }
  bool rescale = false;
  if (softcap.updates_row_max) {
    rescale = update_row_max(capped, state, factor);
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float maximum = quad_max(capped[h]);
      if (state.row_max[h] == kNegInfFinite && maximum > -INFINITY)
        state.row_max[h] = fmaxf(maximum, softcap.min_row_max);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int threshold = state.row_max[h] == kNegInfFinite || softcap.two_sided ? 0 : softcap.small;
    state.rescale_threshold[h] =
        softcap.updates_row_max
            ? max(min(threshold, rescale_threshold_of(state.row_max[h], softcap.polynomial[0])), 0)
            : threshold;
  }
  return rescale;
}

/// s -> 2^(capped s - row_max), added to row_sum. Returns what update_row_max does. Nearly all scores are
/// small against the cap: tanh is then a polynomial on the FMA units and needs no exponential or reciprocal.
/// A lane decides for all of its scores of a row whether they are small; no row depends on another. -inf
/// stays -inf. `keys`: an upper bound of the keys that the rows have seen, with this tile.
template <int kCount>
FOVEA_DEVICE bool online_softmax_softcap(float (&s)[kCount], SoftmaxState& state,
                                         const PrefillSoftcap& softcap, int keys, float (&factor)[2]) {
  int bits[2];
  max_score_bits(s, bits);
  bool rescale = false, all_small = true, small[2] = {true, true};
  factor[0] = factor[1] = 1.0f;
  const auto reaches = [&](int h) {
    return static_cast<unsigned>(bits[h]) >= static_cast<unsigned>(state.rescale_threshold[h]);
  };
  if (__any_sync(~0u, reaches(0) || reaches(1))) [[unlikely]] {
    rescale = update_softcap_row_max(s, bits, state, softcap, keys, small, factor);
    all_small = __all_sync(~0u, small[0] && small[1]) != 0;
  }
  if (all_small) [[likely]] {
    constexpr int kGroup = kCount % 8 == 0 ? 8 : 4;
#pragma unroll
    for (int i = 0; i < kCount; i += kGroup) {
      float slope[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        slope[k] = softcap_polynomial(softcap, s[i + k]);
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        s[i + k] = exp2_approx(fmaf(s[i + k], slope[k], -state.row_max[k / 2 % 2]));
#pragma unroll
      for (int k = 0; k < kGroup; k += 2)
        state.row_sum[k / 2 % 2] += s[i + k] + s[i + k + 1];
    }
  } else {
    // Polynomial first, then tanh, in two passes, to limit register use.
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int h = i / 2 % 2;
      const float exponent = fmaf(s[i], softcap_polynomial(softcap, s[i]), -state.row_max[h]);
      s[i] = small[h] ? exponent : s[i];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int h = i / 2 % 2;
      const float exponent =
          fmaf(-2.0f * softcap.limit, softcap_reciprocal(softcap, s[i]), softcap.limit) - state.row_max[h];
      s[i] = exp2_approx(small[h] || s[i] == -INFINITY ? s[i] : exponent);
      if (i % 2 == 1) state.row_sum[h] += s[i - 1] + s[i];
    }
  }
  return rescale;
}

}  // namespace fovea::cuda::sm90
