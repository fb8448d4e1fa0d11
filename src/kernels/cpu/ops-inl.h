// The row kernels of ops.h, for the instruction set of the including file.
#include "kernels/cpu/ops_kernels.h"
#include "kernels/cpu/simd_rows.h"

namespace fovea::ops_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

constexpr int kLanes = Vec::kLanes;

inline float sum_of_squares(const float* x, int64_t n) {
  Vec sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int s = 0; s < 4; ++s) {
      const Vec v = load(x + i + s * kLanes);
      sum[s] = fma(v, v, sum[s]);
    }
  for_each_vector(n - i, [&](int64_t at, int lanes) {
    const Vec v = load_part(x + i + at, lanes);
    sum[0] = fma(v, v, sum[0]);
  });
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

inline void scale_by(const float* x, float scale, const float* weight, float* y, int64_t n) {
  const Vec s = set1(scale);
  for_each_vector(n, [&](int64_t i, int lanes) {
    store_part(y + i, load_part(x + i, lanes) * s * load_part(weight + i, lanes), lanes);
  });
}

/// Sum of f(vector) over x; the lanes past its end are not terms.
template <class F>
FOVEA_INLINE float sum_of(const float* x, int64_t n, const F& f) {
  Vec sum[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int s = 0; s < 4; ++s)
      sum[s] = sum[s] + f(load(x + i + s * kLanes));
  for_each_vector(n - i, [&](int64_t at, int lanes) {
    Vec term = f(load_part(x + i + at, lanes));
    if (lanes < kLanes) {
      float terms[kLanes] = {};
      store_n(terms, term, lanes);
      term = load(terms);
    }
    sum[0] = sum[0] + term;
  });
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

inline float sum(const float* x, int64_t n) {
  return sum_of(x, n, [](Vec v) { return v; });
}

inline float sum_of_squares_about(const float* x, float mean, int64_t n) {
  const Vec m = set1(mean);
  return sum_of(x, n, [&](Vec v) { return (v - m) * (v - m); });
}

inline void normalise(const float* x, float mean, float scale, const float* weight, const float* bias,
                      float* y, int64_t n) {
  const Vec m = set1(mean), s = set1(scale);
  for_each_vector(n, [&](int64_t i, int lanes) {
    const Vec unit = (load_part(x + i, lanes) - m) * s;
    store_part(y + i, fma(unit, load_part(weight + i, lanes), load_part(bias + i, lanes)), lanes);
  });
}

inline void add_scaled(float* x, const float* y, float scale, int64_t n) {
  const Vec s = set1(scale);
  for_each_vector(n, [&](int64_t i, int lanes) {
    store_part(x + i, fma(load_part(y + i, lanes), s, load_part(x + i, lanes)), lanes);
  });
}

inline void scale(float* x, float scale, int64_t n) {
  const Vec s = set1(scale);
  for_each_vector(n, [&](int64_t i, int lanes) { store_part(x + i, load_part(x + i, lanes) * s, lanes); });
}

inline void softcap(float* x, float cap, int64_t n) {
  const Vec c = set1(cap), inverse = set1(1.0f / cap);
  for_each_vector(n, [&](int64_t i, int lanes) {
    store_part(x + i, tanh(load_part(x + i, lanes) * inverse) * c, lanes);
  });
}

/// z / (1 + e^-u) for u of z's sign. With e = e^-|u| <= 1 nothing overflows: z / (1 + e) for u >= 0,
/// z e / (1 + e) below.
FOVEA_INLINE Vec times_sigmoid(Vec z, Vec u) {
  const Vec e = exp(min(u, zero() - u));
  return z * select_less(u, zero(), e, set1(1.0f)) / (set1(1.0f) + e);
}

FOVEA_INLINE Vec silu(Vec z) {
  return times_sigmoid(z, z);
}

/// (1 + tanh(u)) / 2 = 1 / (1 + e^-2u).
FOVEA_INLINE Vec gelu_tanh(Vec z) {
  constexpr float kTwice = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  const Vec cubic = fma(z * z, set1(kTwice * 0.044715f), set1(kTwice));
  return times_sigmoid(z, z * cubic);
}

/// erfc(v) e^(v^2) / t for t = 1 / (1 + v / 2): a smooth function of t, here by the polynomial through its
/// values at the 9 Chebyshev nodes of [1 / 6.2, 1], where it is within 6e-8 of it. From v = 10.2 on
/// e^(-v^2) is 0 in fp32.
FOVEA_INLINE Vec gelu(Vec z) {
  constexpr float kSqrtHalf = 0.70710678118654752f;
  const Vec v = min(max(z, zero() - z) * set1(kSqrtHalf), set1(10.2f));
  const Vec t = set1(1.0f) / fma(v, set1(0.5f), set1(1.0f));
  Vec p = set1(-5.995883556e-2f);
  p = fma(p, t, set1(2.889137258e-1f));
  p = fma(p, t, set1(-4.961321452e-1f));
  p = fma(p, t, set1(2.881616743e-1f));
  p = fma(p, t, set1(-3.343931460e-2f));
  p = fma(p, t, set1(2.054835402e-1f));
  p = fma(p, t, set1(2.424261574e-1f));
  p = fma(p, t, set1(2.824634270e-1f));
  p = fma(p, t, set1(2.820817277e-1f));
  // The probability of the tail beyond |z|.
  const Vec tail = set1(0.5f) * (p * t) * exp(zero() - v * v);
  return z * select_less(z, zero(), tail, set1(1.0f) - tail);
}

FOVEA_INLINE Vec relu(Vec z) {
  return max(zero(), z);  // the second operand where it is NaN
}

template <Vec (*F)(Vec)>
inline void activate(const float* x, float* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, int lanes) { store_part(y + i, F(load_part(x + i, lanes)), lanes); });
}

template <Vec (*F)(Vec)>
inline void activate_mul(const float* gate, const float* up, float* out, int64_t n) {
  for_each_vector(n, [&](int64_t i, int lanes) {
    store_part(out + i, F(load_part(gate + i, lanes)) * load_part(up + i, lanes), lanes);
  });
}

inline void rotate(float* a, float* b, const float* cos, const float* sin, int64_t n) {
  for_each_vector(n, [&](int64_t i, int lanes) {
    const Vec c = load_part(cos + i, lanes), s = load_part(sin + i, lanes);
    const Vec va = load_part(a + i, lanes), vb = load_part(b + i, lanes);
    store_part(a + i, va * c - vb * s, lanes);
    store_part(b + i, vb * c + va * s, lanes);
  });
}

inline void rotate_interleaved(float* x, const float* cos, const float* sin, int64_t n) {
  for (int64_t t = 0; t < n; ++t) {
    const float a = x[2 * t], b = x[2 * t + 1];
    x[2 * t] = a * cos[t] - b * sin[t];
    x[2 * t + 1] = b * cos[t] + a * sin[t];
  }
}

inline float max_of(const float* x, int64_t n) {
  const float lowest = -__builtin_inff();
  Vec top[4] = {set1(lowest), set1(lowest), set1(lowest), set1(lowest)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int s = 0; s < 4; ++s)
      top[s] = max(load(x + i + s * kLanes), top[s]);  // the second operand where the first is NaN
  for (; i + kLanes <= n; i += kLanes)
    top[0] = max(load(x + i), top[0]);
  float best = reduce_max(max(max(top[0], top[1]), max(top[2], top[3])));
  for (; i < n; ++i)
    if (x[i] > best) best = x[i];
  return best;
}

inline float sum_exp(const float* x, float shift, int64_t n) {
  const Vec infinity = set1(__builtin_inff()), minus = set1(-shift);
  Vec sum = zero(), special = zero();
  for_each_vector(n, [&](int64_t i, int lanes) {
    Vec v = load_part(x + i, lanes);
    special = special + select_less(v, infinity, zero(), v);
    v = exp(v + minus);
    if (lanes < kLanes) {  // the lanes past the end are not terms
      float terms[kLanes] = {};
      store_n(terms, v, lanes);
      v = load(terms);
    }
    sum = sum + v;
  });
  return reduce_add(sum) + reduce_add(special);
}

constexpr OpsKernels kTable = {
    sum_of_squares,
    scale_by,
    sum,
    sum_of_squares_about,
    normalise,
    add_scaled,
    scale,
    softcap,
    {activate<silu>, activate<gelu>, activate<gelu_tanh>, activate<relu>},
    {activate_mul<silu>, activate_mul<gelu>, activate_mul<gelu_tanh>, activate_mul<relu>},
    rotate,
    rotate_interleaved,
    max_of,
    sum_exp,
};

}  // namespace fovea::ops_detail::FOVEA_SIMD_NAMESPACE
