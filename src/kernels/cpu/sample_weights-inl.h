// scaled_weight() of base/sample_math.h on vectors, for the instruction set of the including file. Its
// constants are repeated: this file includes no header with inline functions.
#include "kernels/cpu/sample_weights_kernels.h"
#include "kernels/cpu/simd.h"

namespace fovea::sample_detail::FOVEA_SIMD_NAMESPACE {

constexpr int kLanes = fovea::FOVEA_SIMD_NAMESPACE::Vec::kLanes;

// The compiler's vectors: unlike Vec they convert between floats, doubles and integers.
typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef float HalfFloats __attribute__((vector_size(2 * kLanes)));
typedef double Doubles __attribute__((vector_size(4 * kLanes)));
typedef uint64_t Longs __attribute__((vector_size(4 * kLanes)));

constexpr uint64_t kMagicBits = 0x4330000000000000u;  // of 2^52

/// The weights before they are rounded.
FOVEA_INLINE Floats scaled(Floats x, const WeightRule& rule) {
  const Floats lowest = Floats{} - 40.0f;
  Floats z = (x - rule.max) * rule.scale;
  z = z > lowest ? z : lowest;
  const Floats t = z * 1.44269504088896341f + 12582912.0f;
  const Ints n = (Ints)t - 0x4b400000;
  const Floats whole = t - 12582912.0f;
  const Floats r = (z - whole * 0.693359375f) - whole * -2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  const Floats w = (Floats)((Ints)p + ((n + 43) << 23));
  return w >= rule.least ? w : Floats{};
}

/// The lower half of w rounded to integers, plus kMagicBits; and the upper one.
FOVEA_INLINE Longs rounded_low(Floats w) {
#if defined(__AVX512F__)
  const HalfFloats half = __builtin_shufflevector(w, w, 0, 1, 2, 3, 4, 5, 6, 7);
#elif defined(__AVX2__)
  const HalfFloats half = __builtin_shufflevector(w, w, 0, 1, 2, 3);
#else
  const HalfFloats half = __builtin_shufflevector(w, w, 0, 1);
#endif
  return (Longs)(__builtin_convertvector(half, Doubles) + 0x1p52);
}
FOVEA_INLINE Longs rounded_high(Floats w) {
#if defined(__AVX512F__)
  const HalfFloats half = __builtin_shufflevector(w, w, 8, 9, 10, 11, 12, 13, 14, 15);
#elif defined(__AVX2__)
  const HalfFloats half = __builtin_shufflevector(w, w, 4, 5, 6, 7);
#else
  const HalfFloats half = __builtin_shufflevector(w, w, 2, 3);
#endif
  return (Longs)(__builtin_convertvector(half, Doubles) + 0x1p52);
}

FOVEA_INLINE Floats load_floats(const float* x, int64_t n, float padding) {
  Floats v = Floats{} + padding;
  if (n >= kLanes)
    __builtin_memcpy(&v, x, sizeof v);
  else
    for (int64_t i = 0; i < n; ++i)
      v[i] = x[i];
  return v;
}

inline uint64_t sum(const float* x, int64_t n, const WeightRule& rule) {
  constexpr float kNone = -__builtin_inff();
  Longs total[4] = {};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const Floats a = scaled(load_floats(x + i, kLanes, 0), rule);
    const Floats b = scaled(load_floats(x + i + kLanes, kLanes, 0), rule);
    total[0] += rounded_low(a);
    total[1] += rounded_high(a);
    total[2] += rounded_low(b);
    total[3] += rounded_high(b);
  }
  uint64_t added = 4 * static_cast<uint64_t>(i) / (2 * kLanes);  // vectors of Longs, each with kMagicBits
  for (; i < n; i += kLanes, added += 2) {
    const Floats w = scaled(load_floats(x + i, n - i, kNone), rule);
    total[0] += rounded_low(w);
    total[1] += rounded_high(w);
  }
  const Longs all = (total[0] + total[1]) + (total[2] + total[3]);
  uint64_t result = 0;
  for (int lane = 0; lane < kLanes / 2; ++lane)
    result += all[lane];
  return result - added * (kLanes / 2) * kMagicBits;  // modulo 2^64
}

inline void each(const float* x, int64_t n, const WeightRule& rule, uint64_t* weights) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats w = scaled(load_floats(x + i, kLanes, 0), rule);
    const Longs low = rounded_low(w) - kMagicBits, high = rounded_high(w) - kMagicBits;
    __builtin_memcpy(weights + i, &low, sizeof low);
    __builtin_memcpy(weights + i + kLanes / 2, &high, sizeof high);
  }
  if (i == n) return;
  const Floats w = scaled(load_floats(x + i, n - i, 0), rule);
  const Longs halves[2] = {rounded_low(w) - kMagicBits, rounded_high(w) - kMagicBits};
  for (int lane = 0; i < n; ++i, ++lane)
    weights[i] = halves[lane / (kLanes / 2)][lane % (kLanes / 2)];
}

inline int64_t count_from(const float* x, int64_t n, float least) {
  Ints below[2] = {};  // 0 or -1 of each comparison
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    below[0] += load_floats(x + i, kLanes, 0) >= least;
    below[1] += load_floats(x + i + kLanes, kLanes, 0) >= least;
  }
  const Ints all = below[0] + below[1];
  int64_t count = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    count -= all[lane];
  for (; i < n; ++i)
    count += x[i] >= least;
  return count;
}

constexpr WeightKernels kTable = {sum, each, count_from};

}  // namespace fovea::sample_detail::FOVEA_SIMD_NAMESPACE
