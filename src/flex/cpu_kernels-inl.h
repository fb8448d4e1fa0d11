#pragma once
#include "base/float16.h"
#include "flex/cpu_kernels.h"
#include "flex/strip-inl.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

using flex::kPad;

template <class T>
bool widen_from(const T* from, int n, float factor, float* to) {
  Vec infinite = zero();  // x - x is 0 where x is finite, else NaN
  for (int i = 0; i < n; i += Vec::kLanes) {
    const int count = n - i < Vec::kLanes ? n - i : Vec::kLanes;
    const Vec x = load_n(from + i, count) * set1(factor);
    infinite = infinite + (x - x);
    store_n(to + i, x, count);
  }
  float lanes[Vec::kLanes];
  store(lanes, infinite);
  bool finite = true;
  for (const float x : lanes)
    finite = finite && x == 0.0f;
  return finite;
}

inline bool widen(const void* from, DType type, int n, float factor, float* to) {
  switch (type) {
    case DType::f32: return widen_from(static_cast<const float*>(from), n, factor, to);
    case DType::f16: return widen_from(static_cast<const fp16*>(from), n, factor, to);
    case DType::bf16: return widen_from(static_cast<const bf16*>(from), n, factor, to);
  }
  return false;
}

inline void narrow(const float* from, DType type, int n, void* to) {
  for (int i = 0; i < n; i += Vec::kLanes) {
    const int count = n - i < Vec::kLanes ? n - i : Vec::kLanes;
    const Vec x = load_n(from + i, count);
    if (type == DType::f32)
      store_n(static_cast<float*>(to) + i, x, count);
    else if (type == DType::f16)
      store_n(static_cast<fp16*>(to) + i, x, count);
    else
      store_n(static_cast<bf16*>(to) + i, x, count);
  }
}

inline void transpose_keys(const float* keys, int64_t dp, float* to) {
  constexpr int kLanes = Vec::kLanes;
  for (int j = 0; j < kStrip; j += kLanes)
    for (int64_t d = 0; d < dp; d += kLanes) {
      Vec square[kLanes];
      for (int i = 0; i < kLanes; ++i)
        square[i] = load(keys + (j + i) * dp + d);
      transpose(square);
      for (int i = 0; i < kLanes; ++i)
        store(to + (d + i) * kStrip + j, square[i]);
    }
}

/// kRows x 2 vectors of keys from lane j on.
template <int kRows>
FOVEA_INLINE void score_block(const float* q, const float* keys, int d, int64_t dp, float scale, float* s) {
  constexpr int kLanes = Vec::kLanes;
  Vec sum[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    sum[r][0] = sum[r][1] = zero();
  for (int i = 0; i < d; ++i) {
    const Vec a = load(keys + int64_t{i} * kStrip), b = load(keys + int64_t{i} * kStrip + kLanes);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const Vec x = set1(q[r * dp + i]);
      sum[r][0] = fma(x, a, sum[r][0]);
      sum[r][1] = fma(x, b, sum[r][1]);
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) {
    store(s + r * kStrip, sum[r][0] * set1(scale));
    store(s + r * kStrip + kLanes, sum[r][1] * set1(scale));
  }
}

inline void scores(const float* q, const float* keys, int d, int64_t dp, int rows, float scale, float* s) {
  for (int j = 0; j < kStrip; j += 2 * Vec::kLanes) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      score_block<4>(q + r * dp, keys + j, d, dp, scale, s + r * kStrip + j);
    for (; r < rows; ++r)
      score_block<1>(q + r * dp, keys + j, d, dp, scale, s + r * kStrip + j);
  }
}

inline void hide(float* s, const int32_t* seen, int count) {
  const float minus_inf = -__builtin_inff();
  if (seen != nullptr)
    for (int i = 0; i < kStrip; ++i)
      s[i] = seen[i] != 0 ? s[i] : minus_inf;
  for (int i = count; i < kStrip; ++i)
    s[i] = minus_inf;
}

/// Weights below e^-64 of the largest are 0: no sum shows them, and their products would be subnormal, which
/// CPUs multiply slowly.
inline constexpr float kLeastExponent = -64.0f;

inline float softmax(float* s, float* max_, float* sums) {
  constexpr int kLanes = Vec::kLanes;
  const float minus_inf = -__builtin_inff();
  Vec high = set1(minus_inf);
  for (int i = 0; i < kStrip; i += kLanes)
    high = max(high, load(s + i));
  const float before = *max_, block = reduce_max(high);
  const float after = before > block ? before : block;
  const float base = after == minus_inf ? 0.0f : after;  // no key is seen yet: every weight is 0
  float alpha = 1.0f;
  if (after != before) {
    float lanes[kLanes];
    store(lanes, exp(set1(before - base)));
    alpha = lanes[0];
    *max_ = after;
  }
  Vec total = load(sums) * set1(alpha);
  for (int i = 0; i < kStrip; i += kLanes) {
    const Vec below = load(s + i) - set1(base);
    const Vec weight = select_less(below, set1(kLeastExponent), zero(), exp(below));
    store(s + i, weight);
    total = total + weight;
  }
  store(sums, total);
  return alpha;
}

inline float total(const float* sums) {
  return reduce_add(load(sums));
}

template <int kRows>
FOVEA_INLINE void value_block(const float* p, const float* values, const float* alpha, int64_t dvp,
                              float* o) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kVecs = 4;
  Vec sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t c = 0; c < kVecs; ++c)
      sum[r][c] = load(o + r * dvp + c * kLanes) * set1(alpha[r]);
  for (int j = 0; j < kStrip; ++j) {
    Vec v[kVecs];
#pragma GCC unroll 4
    for (int64_t c = 0; c < kVecs; ++c)
      v[c] = load(values + j * dvp + c * kLanes);
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      const Vec x = set1(p[r * kStrip + j]);
#pragma GCC unroll 4
      for (int64_t c = 0; c < kVecs; ++c)
        sum[r][c] = fma(x, v[c], sum[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int64_t c = 0; c < kVecs; ++c)
      store(o + r * dvp + c * kLanes, sum[r][c]);
}

inline void accumulate(const float* p, const float* values, const float* alpha, int64_t dvp, int rows,
                       float* o) {
  for (int64_t d = 0; d < dvp; d += int64_t{4} * Vec::kLanes) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      value_block<4>(p + r * kStrip, values + d, alpha + r, dvp, o + r * dvp + d);
    for (; r < rows; ++r)
      value_block<1>(p + r * kStrip, values + d, alpha + r, dvp, o + r * dvp + d);
  }
}

inline constexpr flex::CpuKernels kTable = {run_strip, widen,   narrow, transpose_keys, scores,
                                            hide,      softmax, total,  accumulate};

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
