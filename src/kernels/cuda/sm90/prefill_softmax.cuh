#pragma once
// Scores of a tile -> probabilities, in a consumer's registers: 64 rows, thread (g, q) of a warp has rows g
// and g + 8 of its warp's 16 and, of 8 keys, 2 q and 2 q + 1.
#include "kernels/cuda/sm80/softmax.cuh"
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
  const KeyInterval a = keys_of_row(p, item, packed_row), b = keys_of_row(p, item, packed_row + 8);
  return {__reduce_max_sync(~0u, max(a.low, b.low)), __reduce_min_sync(~0u, min(a.high, b.high))};
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

/// s -> 2^(scale s - base), moving the bases of rows whose maximum has left theirs behind. Gives whether a
/// row of the warp moved; O is then to be multiplied by `factor`.
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
  bool left = false;
#pragma unroll
  for (int h = 0; h < 2; ++h)
    left |= fmaf(top[h], scale, -kLazy) > rows.base[h];
  const bool moved = __any_sync(~0u, left) != 0;
  factor[0] = factor[1] = 1.0f;
  if (moved) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float maximum = quad_max(top[h]), old = rows.base[h];
      if (fmaf(maximum, scale, -kLazy) > old) rows.base[h] = maximum * scale;
      factor[h] = exp2_approx(old - rows.base[h]);
      rows.sum[h] *= factor[h];
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

/// Scores under a soft cap. tanh(x) = 1 - 2 / (e^(2x) + 1), of which the 1 is left to the end of the row:
/// s -> -1 / (2^(s * scale) + 1). One reciprocal serves kServed keys of a row, as it and 2^x have a unit of a
/// quarter of the others' rate: 1/a = b (1 / ab). 2^31 + 1 and more are as good as infinity, and four of them
/// are in range. A NaN spreads to the other keys, so unseen ones are hidden before, and again after.
template <int kServed, int kCount>
FOVEA_DEVICE void cap_scores(float (&s)[kCount], float scale) {
  static_assert((kServed == 2 || kServed == 4) && kCount % 8 == 0);
#pragma unroll
  for (int i = 0; i < kCount / kServed; ++i) {
    // Of a row: two neighbours, and two 4 registers on.
    const int at = kServed == 2 ? 2 * i : i / 2 * 8 + i % 2 * 2;
    float d[kServed];
#pragma unroll
    for (int k = 0; k < kServed; ++k) {
      float x = s[at + k % 2 + k / 2 * 4] * scale;
      asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(x), "f"(31.0f));
      d[k] = exp2_approx(x) + 1.0f;
    }
    const float first = d[0] * d[1], second = kServed == 4 ? d[kServed - 2] * d[kServed - 1] : 1.0f;
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(first * second));
#pragma unroll
    for (int k = 0; k < kServed; ++k)
      s[at + k % 2 + k / 2 * 4] = -r * (k < 2 ? second : first) * d[k ^ 1];
  }
}

}  // namespace fovea::cuda::sm90
