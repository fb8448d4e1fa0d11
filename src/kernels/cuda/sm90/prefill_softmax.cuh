#pragma once
// Scores of a tile -> probabilities, in a consumer's registers: 64 rows, thread (g, q) of a warp has rows g
// and g + 8 of its warp's 16 and, of 8 keys, 2 q and 2 q + 1.
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/sm90/prefill_params.h"
#include "kernels/cuda/sm90/prefill_policy.h"
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

  FOVEA_DEVICE void reset() {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      base[h] = kNothing, sum[h] = 0.0f;
  }
};

FOVEA_DEVICE int floor_quotient(int a, int b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// The keys that one row sees: an interval, whatever the mask.
struct KeyInterval {
  int low, high;  ///< empty unless low < high
};
FOVEA_DEVICE KeyInterval keys_of_row(const AttentionParams& p, const WorkItem& item, int packed_row) {
  // Rows past the sequence's do as its last.
  const int token = min(p.group.quotient(packed_row), item.n_q - 1);
  const int position = token + item.n_k - item.n_q;
  KeyInterval keys{p.mask.window_left >= 0 ? max(position - p.mask.window_left, 0) : 0, item.n_k};
  if (p.mask.causal) keys.high = min(keys.high, position + 1);
  if (p.mask.window_right >= 0)
    keys.high = static_cast<int>(min(int64_t{keys.high}, int64_t{position} + p.mask.window_right + 1));
  if (p.mask.chunk > 0) {
    const int first = floor_quotient(position, p.mask.chunk) * p.mask.chunk;
    keys.low = max(keys.low, first);
    keys.high = static_cast<int>(min(int64_t{keys.high}, int64_t{first} + p.mask.chunk));
  }
  return keys;
}

/// Those that all rows of this warp see; `packed_row`: this thread's first, the other is 8 further on.
FOVEA_DEVICE KeyInterval keys_of_warp(const AttentionParams& p, const WorkItem& item, int packed_row) {
  // Lanes of a quad share their two rows: odd ones look at the second.
  const KeyInterval keys = keys_of_row(p, item, packed_row + (threadIdx.x % 2 == 1 ? 8 : 0));
  return {__reduce_max_sync(~0u, keys.low), __reduce_min_sync(~0u, keys.high)};
}

/// Scores of keys from key0 on that a row doesn't see -> -inf.
template <int kCount>
FOVEA_DEVICE void hide_keys(float (&s)[kCount], const AttentionParams& p, const WorkItem& item,
                            int packed_row, int key0) {
  const int first = key0 + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const KeyInterval keys = keys_of_row(p, item, packed_row + 8 * h);
    const int from = keys.low - first, past = keys.high - first;
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int key = i / 2 * 8 + i % 2;
      float& x = s[i / 2 * 4 + 2 * h + i % 2];
      x = key < from || key >= past ? -INFINITY : x;
    }
  }
}

/// Brings the bases of rows whose maximum has left theirs behind to it; `top`: this lane's maxima. Gives
/// whether a row of the warp moved; O is then to be multiplied by `factor`.
FOVEA_DEVICE bool move_bases(const float (&top)[2], PrefillRows& rows, float (&factor)[2]) {
  const bool left = top[0] - kLazy > rows.base[0] || top[1] - kLazy > rows.base[1];
  const bool moved = __any_sync(~0u, left) != 0;
  factor[0] = factor[1] = 1.0f;
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

/// s -> 2^(scale s - base); as move_bases.
template <int kCount>
FOVEA_DEVICE bool soften(float (&s)[kCount], PrefillRows& rows, float scale, float (&factor)[2]) {
  float top[2];
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float larger = fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]);
      top[h] = i == 0 ? larger : fmaxf(top[h], larger);
    }
  top[0] *= scale, top[1] *= scale;
  const bool moved = move_bases(top, rows, factor);
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

/// x^2 -> tanh(x scale) / x in log2 units, where all that a lane has of a row is small.
FOVEA_DEVICE float small_slope(const PrefillCap& cap, float squared) {
  float slope = fmaf(cap.terms[3], squared, cap.terms[2]);
  slope = fmaf(slope, squared, cap.terms[1]);
  return fmaf(slope, squared, cap.terms[0]);
}
/// 1 / (2^(2 x scale) + 1): tanh(x scale) = 1 - 2 / (2^(2 x scale) + 1).
FOVEA_DEVICE float cap_rest(const PrefillCap& cap, float x) {
  float rest;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(exp2_approx(x * cap.scale) + 1.0f));
  return rest;
}

/// s -> 2^(capped s - base); as move_bases. Nearly all scores are small against the cap: then tanh is a
/// polynomial, which needs no unit that all wait for. What is small a lane says for all that it has of a row: no
/// row depends on another. -inf stays -inf.
template <int kCount>
FOVEA_DEVICE bool soften_capped(float (&s)[kCount], PrefillRows& rows, const PrefillCap& cap,
                                float (&factor)[2]) {
  float top[2], squares[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kCount / 4; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float a = s[4 * i + 2 * h], b = s[4 * i + 2 * h + 1], larger = fmaxf(a, b);
      top[h] = i == 0 ? larger : fmaxf(top[h], larger);
      squares[h] = fmaf(b, b, fmaf(a, a, squares[h]));
    }
  const bool small[2] = {squares[0] <= cap.small, squares[1] <= cap.small};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float x = top[h], large = fmaf(-2.0f * cap.limit, cap_rest(cap, x), cap.limit);
    top[h] = small[h] ? x * small_slope(cap, x * x) : x == -INFINITY ? x : large;
  }
  const bool moved = move_bases(top, rows, factor);
  if (__all_sync(~0u, small[0] && small[1])) {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int h = i % 2;
      float &a = s[2 * i], &b = s[2 * i + 1];
      a = exp2_approx(fmaf(a, small_slope(cap, a * a), -rows.base[h]));
      b = exp2_approx(fmaf(b, small_slope(cap, b * b), -rows.base[h]));
      rows.sum[h] += a + b;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const int h = i % 2;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float& x = s[2 * i + k];
        const float rest = -2.0f * cap_rest(cap, x);
        const float power = small[h] ? fmaf(x, small_slope(cap, x * x), -rows.base[h])
                                     : fmaf(rest, cap.limit, cap.limit - rows.base[h]);
        x = exp2_approx(x == -INFINITY ? x : power);
      }
      rows.sum[h] += s[2 * i] + s[2 * i + 1];
    }
  }
  return moved;
}

}  // namespace fovea::cuda::sm90
