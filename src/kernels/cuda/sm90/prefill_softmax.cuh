#pragma once
// Scores of a tile -> probabilities, in a consumer's registers: 64 rows, thread (g, q) of a warp has rows g
// and g + 8 of its warp's 16 and, of 8 keys, 2 q and 2 q + 1.
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/sm90/prefill_params.h"
#include "kernels/cuda/sm90/prefill_policy.h"
#include "kernels/cuda/sm90/row_keys.cuh"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda::sm90 {

/// What a row's exponents are taken against may lie this far below its largest score, in log2 units: a step
/// of 2^8 costs no bit of what is summed, and saves bringing O to a new maximum in nearly every tile. Whether
/// a row moves depends on its own scores only.
inline constexpr float kLazy = 8.0f;
/// Instead of -inf while a row has seen no key: differences with it are never NaN.
inline constexpr float kNothing = -0x1.fffffep+127f;

/// Running softmax of a thread's two rows, in log2 units; `sum` is this lane's share.
struct PrefillRows {
  float base[2], sum[2];
  /// Bits of what scores must reach to bring the row to another base. Where scores are capped they are
  /// compared as unsigned integers, so that all scores below 0 reach them, and what doesn't is small.
  int ceiling[2];

  /// `ceilings`: what all scores reach.
  FOVEA_DEVICE void reset(int ceilings) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      base[h] = kNothing, sum[h] = 0.0f, ceiling[h] = ceilings;
  }
};
inline constexpr int kReached = INT32_MIN;  ///< a ceiling, by all scores

FOVEA_DEVICE KeyInterval keys_of_row(const AttentionParams& p, const WorkItem& item, int packed_row) {
  // Rows past the sequence's do as its last.
  const int token = min(p.group.quotient(packed_row), item.n_q - 1);
  return seen_keys(p.mask, item, token + item.n_k - item.n_q);
}

/// Those that all of a consumer's rows see, of which `packed_row` is the first: bounds never fall from row to
/// row.
FOVEA_DEVICE KeyInterval keys_of_all(const AttentionParams& p, const WorkItem& item, int packed_row) {
  const KeyInterval keys = keys_of_row(p, item, packed_row + (threadIdx.x % 2 == 1 ? 63 : 0));
  return {__reduce_max_sync(~0u, keys.first), __reduce_min_sync(~0u, keys.last)};
}

/// Scores of keys from key0 on that a row doesn't see -> -inf.
template <int kCount>
FOVEA_DEVICE void hide_keys(float (&s)[kCount], const AttentionParams& p, const WorkItem& item,
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

/// PrefillRows::ceiling of scores that `scale` brings to log2 units. A little less, so that no rounding
/// decides.
FOVEA_DEVICE int ceiling_of(float base, float scale) {
  const float limit = base + kLazy - 1e-6f * (fabsf(base) + 16.0f);
  return limit > 0.0f ? __float_as_int(__fdividef(limit, scale)) : kReached;
}

/// Brings the bases of rows whose maximum has left theirs behind to it; `top`: this lane's maxima. Gives
/// whether a row of the warp moved; O is then to be multiplied by `factor`.
FOVEA_DEVICE bool move_bases(const float (&top)[2], PrefillRows& rows, float (&factor)[2]) {
  const bool left = top[0] - kLazy > rows.base[0] || top[1] - kLazy > rows.base[1];
  const bool moved = __any_sync(~0u, left) != 0;
  if (moved) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float maximum = quad_max(top[h]), old = rows.base[h];
      if (maximum - kLazy > old) rows.base[h] = maximum;
      factor[h] = exp2_approx(old - rows.base[h]);
      rows.sum[h] *= factor[h];
    }
  }
  return moved;
}

/// The bits of a lane's largest score in each row, if that is >= 0; else something with the sign bit. As
/// signed integers bits order what is >= 0, and all below 0 lies below: the largest of three takes one
/// instruction.
template <int kCount>
FOVEA_DEVICE void largest_bits(const float (&s)[kCount], int (&top)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    int a = __float_as_int(s[2 * h]), b = __float_as_int(s[2 * h + 1]);
#pragma unroll
    for (int i = 1; i < kCount / 4; ++i)
      (i % 2 == 1 ? a : b) = __vimax3_s32(i % 2 == 1 ? a : b, __float_as_int(s[4 * i + 2 * h]),
                                          __float_as_int(s[4 * i + 2 * h + 1]));
    top[h] = max(a, b);
  }
}
/// That score itself, whatever its sign: of those below 0 the largest has the least bits.
template <int kCount>
FOVEA_DEVICE float largest(const float (&s)[kCount], int h, int top) {
  if (top < 0) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
      top = __vimin3_s32(top, __float_as_int(s[4 * i + 2 * h]), __float_as_int(s[4 * i + 2 * h + 1]));
  }
  return __int_as_float(top);
}

/// s -> 2^(scale s - base); as move_bases.
template <int kCount>
FOVEA_DEVICE bool soften(float (&s)[kCount], PrefillRows& rows, float scale, float (&factor)[2]) {
  int top[2];
  largest_bits(s, top);
  bool moved = false;
  factor[0] = factor[1] = 1.0f;
  if (__any_sync(~0u, top[0] >= rows.ceiling[0] || top[1] >= rows.ceiling[1])) [[unlikely]] {
    const float scaled[2] = {largest(s, 0, top[0]) * scale, largest(s, 1, top[1]) * scale};
    moved = move_bases(scaled, rows, factor);
    if (moved) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        rows.ceiling[h] = ceiling_of(rows.base[h], scale);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float &a = s[4 * i + 2 * h], &b = s[4 * i + 2 * h + 1];
      a = exp2_approx(fmaf(a, scale, -rows.base[h]));
      b = exp2_approx(fmaf(b, scale, -rows.base[h]));
      rows.sum[h] += a + b;
    }
  return moved;
}

/// 1 / (2^(2 x scale) + 1): tanh(x scale) = 1 - 2 / (2^(2 x scale) + 1).
FOVEA_DEVICE float cap_rest(const PrefillCap& cap, float x) {
  float rest;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(exp2_approx(x * cap.scale) + 1.0f));
  return rest;
}
/// tanh(x scale) / x in log2 units, where PrefillCap says that x is small.
FOVEA_DEVICE float small_slope(const PrefillCap& cap, float x) {
  const float squared = x * x;
  return fmaf(fmaf(cap.terms[2], squared, cap.terms[1]), squared, cap.terms[0]);
}

/// Whether a lane's scores of a row lie above the negative of `small` too, or of all of them none.
template <int kCount>
FOVEA_DEVICE bool above_negative(const float (&s)[kCount], int h, int small) {
  unsigned low = 0;  // bits of what is below 0 order as unsigned integers do, and lie above all others
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
    low = __vimax3_u32(low, __float_as_uint(s[4 * i + 2 * h]), __float_as_uint(s[4 * i + 2 * h + 1]));
  return low <= (0x80000000u | static_cast<unsigned>(small));
}

/// What capped scores need before their powers where a lane's largest have reached their ceiling: `small`
/// says where tanh is the polynomial, and rows get their base. As move_bases.
template <int kCount>
FOVEA_DEVICE bool settle_capped(const float (&s)[kCount], const int (&top)[2], PrefillRows& rows,
                                const PrefillCap& cap, int keys, bool (&small)[2], float (&factor)[2]) {
  float capped[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool enough = rows.base[h] >= 0.0f && rows.sum[h] >= static_cast<float>(keys) * cap.enough;
    small[h] =
        top[h] <= cap.small && (cap.both_sides ? above_negative(s, h, cap.small) : top[h] >= 0 || enough);
    const float x = largest(s, h, top[h]);
    const float large = x == -INFINITY ? x : fmaf(-2.0f * cap.limit, cap_rest(cap, x), cap.limit);
    capped[h] = small[h] ? x * small_slope(cap, x) : large;
  }
  bool moved = false;
  if (cap.moves) {
    moved = move_bases(capped, rows, factor);
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float maximum = quad_max(capped[h]);
      if (rows.base[h] == kNothing && maximum > -INFINITY) rows.base[h] = fmaxf(maximum, cap.least_base);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int smaller = rows.base[h] == kNothing || cap.both_sides ? 0 : cap.small;
    rows.ceiling[h] = cap.moves ? max(min(smaller, ceiling_of(rows.base[h], cap.terms[0])), 0) : smaller;
  }
  return moved;
}

/// s -> 2^(capped s - base); as move_bases. Nearly all scores are small against the cap: then tanh is a
/// polynomial, which needs no unit that all wait for. What is small a lane says for all that it has of a row:
/// no row depends on another. -inf stays -inf. `keys`: how many the rows have at most seen then.
template <int kCount>
FOVEA_DEVICE bool soften_capped(float (&s)[kCount], PrefillRows& rows, const PrefillCap& cap, int keys,
                                float (&factor)[2]) {
  int top[2];
  largest_bits(s, top);
  bool moved = false, all_small = true, small[2] = {true, true};
  factor[0] = factor[1] = 1.0f;
  const auto reaches = [&](int h) {
    return static_cast<unsigned>(top[h]) >= static_cast<unsigned>(rows.ceiling[h]);
  };
  if (__any_sync(~0u, reaches(0) || reaches(1))) [[unlikely]] {
    moved = settle_capped(s, top, rows, cap, keys, small, factor);
    all_small = __all_sync(~0u, small[0] && small[1]) != 0;
  }
  if (all_small) [[likely]] {
    constexpr int kGroup = kCount % 8 == 0 ? 8 : 4;
#pragma unroll
    for (int i = 0; i < kCount; i += kGroup) {
      float slope[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        slope[k] = small_slope(cap, s[i + k]);
#pragma unroll
      for (int k = 0; k < kGroup; ++k)
        s[i + k] = exp2_approx(fmaf(s[i + k], slope[k], -rows.base[k / 2 % 2]));
#pragma unroll
      for (int k = 0; k < kGroup; k += 2)
        rows.sum[k / 2 % 2] += s[i + k] + s[i + k + 1];
    }
  } else {
    // One way after the other: registers are few.
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int h = i / 2 % 2;
      const float power = fmaf(s[i], small_slope(cap, s[i]), -rows.base[h]);
      s[i] = small[h] ? power : s[i];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int h = i / 2 % 2;
      const float power = fmaf(-2.0f * cap.limit, cap_rest(cap, s[i]), cap.limit) - rows.base[h];
      s[i] = exp2_approx(small[h] || s[i] == -INFINITY ? s[i] : power);
      if (i % 2 == 1) rows.sum[h] += s[i - 1] + s[i];
    }
  }
  return moved;
}

}  // namespace fovea::cuda::sm90
