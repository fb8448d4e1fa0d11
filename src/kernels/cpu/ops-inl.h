// The row kernels of ops.h, for the instruction set of the including file.
#include "kernels/cpu/ops_kernels.h"
#include "kernels/cpu/simd.h"

namespace fovea::ops_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

constexpr int kLanes = Vec::kLanes;

/// Calls f(offset, lanes) for each vector of n elements; only the last may have fewer than kLanes.
template <class F>
FOVEA_INLINE void for_each_vector(int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    f(i, kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

FOVEA_INLINE Vec load_part(const float* p, int lanes) {
  return lanes == kLanes ? load(p) : load_n(p, lanes);
}
FOVEA_INLINE void store_part(float* p, Vec v, int lanes) {
  if (lanes == kLanes)
    store(p, v);
  else
    store_n(p, v, lanes);
}

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

inline void add(float* x, const float* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, int lanes) {
    store_part(x + i, load_part(x + i, lanes) + load_part(y + i, lanes), lanes);
  });
}

inline void silu_mul(const float* gate, const float* up, float* out, int64_t n) {
  for_each_vector(n, [&](int64_t i, int lanes) {
    // With e = e^-|z| <= 1 nothing overflows: z / (1 + e) for z >= 0, z e / (1 + e) below.
    const Vec z = load_part(gate + i, lanes);
    const Vec e = exp(min(z, zero() - z));
    const Vec top = z * select_less(z, zero(), e, set1(1.0f));
    store_part(out + i, top / (set1(1.0f) + e) * load_part(up + i, lanes), lanes);
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

constexpr OpsKernels kTable = {sum_of_squares, scale_by, add, silu_mul, rotate, max_of, sum_exp};

}  // namespace fovea::ops_detail::FOVEA_SIMD_NAMESPACE
