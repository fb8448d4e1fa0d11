#pragma once
// One fp32 vector type for each instruction set. A kernel is a header *-inl.h written against `Vec`, included
// by three files (foo_generic.cc, foo_avx2.cc, foo_avx512.cc); the compiler flags of the file choose the type
// and the inline namespace, so that no two instruction sets share a symbol. Such files include no heavy
// standard header: an inline function of it, compiled for AVX-512, could be the copy that the linker keeps.
#include <cstdint>

#include "base/float16.h"

#if defined(__AVX512F__) || defined(__AVX2__)
// g++-12 takes the deliberately undefined sources of some AVX-512 intrinsics for mistakes of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#if defined(__AVX512F__)
#define FOVEA_SIMD_NAMESPACE simd_avx512
#elif defined(__AVX2__)
#define FOVEA_SIMD_NAMESPACE simd_avx2
#else
#define FOVEA_SIMD_NAMESPACE simd_generic
#endif

#define FOVEA_INLINE inline __attribute__((always_inline))

namespace fovea::FOVEA_SIMD_NAMESPACE {

#if defined(__AVX512F__)

struct Vec {
  static constexpr int kLanes = 16;
  __m512 v;
};
FOVEA_INLINE Vec zero() {
  return {_mm512_setzero_ps()};
}
FOVEA_INLINE Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
FOVEA_INLINE Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
FOVEA_INLINE Vec load(const bf16* p) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
FOVEA_INLINE Vec load(const fp16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
/// Widens kLanes 32-bit words, each of two bf16: the low halves into `low`, the high ones into `high`.
FOVEA_INLINE void load_pairs(const bf16* p, Vec& low, Vec& high) {
  const __m512i words = _mm512_loadu_si512(p);
  low.v = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
  high.v = _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)));
}
FOVEA_INLINE void store(float* p, Vec a) {
  _mm512_storeu_ps(p, a.v);
}
FOVEA_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
FOVEA_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
FOVEA_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
FOVEA_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
FOVEA_INLINE Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
FOVEA_INLINE Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
/// a * b + c, rounded once.
FOVEA_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
FOVEA_INLINE Vec round(Vec a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// a * 2^n for integral n, exact unless it under- or overflows.
FOVEA_INLINE Vec scale2(Vec a, Vec n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}
/// a < b ? x : y, lane by lane (false for NaN).
FOVEA_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
/// The first n lanes from p, the rest 0; reads nothing past p + n.
FOVEA_INLINE Vec load_n(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p)};
}
FOVEA_INLINE void store_n(float* p, Vec a, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), a.v);
}

#elif defined(__AVX2__)

struct Vec {
  static constexpr int kLanes = 8;
  __m256 v;
};
FOVEA_INLINE Vec zero() {
  return {_mm256_setzero_ps()};
}
FOVEA_INLINE Vec set1(float x) {
  return {_mm256_set1_ps(x)};
}
FOVEA_INLINE Vec load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
FOVEA_INLINE Vec load(const bf16* p) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16))};
}
FOVEA_INLINE Vec load(const fp16* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
FOVEA_INLINE void load_pairs(const bf16* p, Vec& low, Vec& high) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  low.v = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
  high.v = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536)));
}
FOVEA_INLINE void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.v);
}
FOVEA_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.v, b.v)};
}
FOVEA_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
FOVEA_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
FOVEA_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.v, b.v)};
}
FOVEA_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.v, b.v)};
}
FOVEA_INLINE Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.v, b.v)};
}
FOVEA_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
FOVEA_INLINE Vec round(Vec a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
FOVEA_INLINE Vec scale2(Vec a, Vec n) {
  // Two factors 2^(n/2), so that a result in the subnormal range is rounded once, at the end.
  const __m256i exponent = _mm256_cvtps_epi32(n.v);
  const __m256i low = _mm256_srai_epi32(exponent, 1);
  const __m256i high = _mm256_sub_epi32(exponent, low);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 f0 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(low, bias), 23));
  const __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(high, bias), 23));
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, f0), f1)};
}
FOVEA_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.v, x.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
}
FOVEA_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FOVEA_INLINE Vec load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_lanes(n))};
}
FOVEA_INLINE void store_n(float* p, Vec a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a.v);
}

#else

struct Vec {
  static constexpr int kLanes = 8;
  // A pair of SSE registers on plain x86-64 (and so aligned as one).
  typedef float Lanes __attribute__((vector_size(32), aligned(16)));
  Lanes v;
};
#define FOVEA_LANES(expr)     \
  Vec r;                      \
  for (int i = 0; i < 8; ++i) \
    r.v[i] = (expr);          \
  return r
FOVEA_INLINE Vec zero() {
  FOVEA_LANES(0.0f);
}
FOVEA_INLINE Vec set1(float x) {
  FOVEA_LANES(x);
}
FOVEA_INLINE Vec load(const float* p) {
  Vec r;
  __builtin_memcpy(&r.v, p, sizeof r.v);
  return r;
}
FOVEA_INLINE Vec load(const bf16* p) {
  FOVEA_LANES(bf16_to_float(p[i].bits));
}
FOVEA_INLINE Vec load(const fp16* p) {
  FOVEA_LANES(fp16_to_float(p[i].bits));
}
FOVEA_INLINE void load_pairs(const bf16* p, Vec& low, Vec& high) {
  uint32_t words __attribute__((vector_size(32)));
  __builtin_memcpy(&words, p, sizeof words);
  const auto shifted = words << 16, masked = words & 0xffff0000u;
  __builtin_memcpy(&low.v, &shifted, sizeof words);
  __builtin_memcpy(&high.v, &masked, sizeof words);
}
FOVEA_INLINE void store(float* p, Vec a) {
  __builtin_memcpy(p, &a.v, sizeof a.v);
}
FOVEA_INLINE Vec operator+(Vec a, Vec b) {
  return {a.v + b.v};
}
FOVEA_INLINE Vec operator-(Vec a, Vec b) {
  return {a.v - b.v};
}
FOVEA_INLINE Vec operator*(Vec a, Vec b) {
  return {a.v * b.v};
}
FOVEA_INLINE Vec operator/(Vec a, Vec b) {
  return {a.v / b.v};
}
FOVEA_INLINE Vec max(Vec a, Vec b) {
  return {a.v > b.v ? a.v : b.v};
}
FOVEA_INLINE Vec min(Vec a, Vec b) {
  return {a.v < b.v ? a.v : b.v};
}
/// Rounded twice: a CPU without FMA would take microseconds for an exact one.
FOVEA_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {a.v * b.v + c.v};
}
FOVEA_INLINE Vec round(Vec a) {
  FOVEA_LANES(__builtin_rintf(a.v[i]));
}
FOVEA_INLINE Vec scale2(Vec a, Vec n) {
  FOVEA_LANES(__builtin_ldexpf(a.v[i], static_cast<int>(n.v[i])));
}
FOVEA_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return {a.v < b.v ? x.v : y.v};
}
FOVEA_INLINE Vec load_n(const float* p, int n) {
  FOVEA_LANES(i < n ? p[i] : 0.0f);
}
FOVEA_INLINE void store_n(float* p, Vec a, int n) {
  for (int i = 0; i < n; ++i)
    p[i] = a.v[i];
}
#undef FOVEA_LANES

#endif

/// Sum of all lanes by halves: lane i + lane i + kLanes / 2, and so on. The order never varies.
FOVEA_INLINE float reduce_add(Vec a) {
  float lanes[Vec::kLanes];
  store(lanes, a);
  for (int half = Vec::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] += lanes[i + half];
  return lanes[0];
}

FOVEA_INLINE float reduce_max(Vec a) {
  float lanes[Vec::kLanes];
  store(lanes, a);
  for (int half = Vec::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
  return lanes[0];
}

/// e^x. Cephes' expf: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 split in two so that r is exact to 1 ulp,
/// then a degree-5 polynomial for (e^r - 1 - r) / r^2; about 1 ulp. Below -104 the result is 0; NaN is not
/// kept.
FOVEA_INLINE Vec exp(Vec x) {
  const Vec clamped = max(min(x, set1(88.72f)), set1(-104.0f));
  const Vec n = round(clamped * set1(1.44269504088896341f));
  Vec r = fma(n, set1(-0.693359375f), clamped);
  r = fma(n, set1(2.12194440e-4f), r);
  Vec p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = fma(p, r * r, r + set1(1.0f));
  return select_less(x, set1(-103.97f), zero(), scale2(p, n));
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
