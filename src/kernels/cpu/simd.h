#pragma once
// One fp32 vector type for each instruction set. A kernel is a header *-inl.h written against `Vec`, included
// by three files (foo_generic.cc, foo_avx2.cc, foo_avx512.cc); the compiler flags of the file choose the type
// and the inline namespace, so that no two instruction sets share a symbol. Such files include no heavy
// standard header: an inline function of it, compiled for AVX-512, could be the copy that the linker keeps.
#include <cstdint>

#include "base/float8.h"

#if defined(__AVX512F__) || defined(__AVX2__)
// g++-12 takes the deliberately undefined sources of some AVX-512 intrinsics for mistakes of ours.
#pragma GCC diagnostic push
#if !defined(__clang__)  // which has no such warning
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
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

/// An fp8 format as its encoder sees it (base/float8.h has the plain one).
struct Fp8Format {
  uint32_t drop, bias;      // fp32 mantissa bits dropped; (127 - the format's bias) at its exponent's place
  float max, least, magic;  // largest number, least normal one, the number whose ulp is the least subnormal
  uint32_t top;             // code of max
};

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
FOVEA_INLINE Vec load_n(const bf16* p, int n) {
  const __m256i half = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
}
FOVEA_INLINE Vec load_n(const fp16* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p))};
}
/// The first n lanes rounded to nearest even; writes nothing past p + n.
FOVEA_INLINE void store_n(bf16* p, Vec a, int n) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));  // quiet
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u), half);
}
FOVEA_INLINE void store_n(fp16* p, Vec a, int n) {
  const __m256i half = _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u), half);
}
/// The lanes' stored codes widened: e4m3 times 2^-8 (see attn::load_factor), e5m2 and int8 as they are.
FOVEA_INLINE Vec widen_codes(const e4m3*, __m128i codes) {
  // Exponent and mantissa moved into an fp16's are the number times 2^-8, subnormals too; 0x7f is not NaN
  // there.
  const __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
  const __m256i halves = _mm256_and_si256(words, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  const __mmask16 numbers = _mm_cmpneq_epu8_mask(_mm_or_si128(codes, _mm_set1_epi8(-128)), _mm_set1_epi8(-1));
  return {_mm512_mask_cvtph_ps(_mm512_set1_ps(__builtin_nanf("")), numbers, halves)};
}
FOVEA_INLINE Vec widen_codes(const e5m2*, __m128i codes) {
  return {_mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8))};
}
FOVEA_INLINE Vec widen_codes(const int8_t*, __m128i codes) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))};
}
template <class T>
FOVEA_INLINE Vec load_codes(const T* p, int n) {
  if (n == 16) return widen_codes(p, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return widen_codes(p, _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << n) - 1u), p));
}
FOVEA_INLINE __m512i fp8_codes(Vec a, const Fp8Format& f) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __m512 size = _mm512_castsi512_ps(magnitude);
  const __m128i drop = _mm_cvtsi32_si128(static_cast<int>(f.drop));
  const __m512i odd = _mm512_and_si512(_mm512_srl_epi32(magnitude, drop), _mm512_set1_epi32(1));
  const __m512i half = _mm512_set1_epi32((1 << (f.drop - 1)) - 1);
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(magnitude, half), odd);
  __m512i code =
      _mm512_sub_epi32(_mm512_srl_epi32(rounded, drop), _mm512_set1_epi32(static_cast<int>(f.bias)));
  const __m512 magic = _mm512_set1_ps(f.magic);
  const __m512i small =
      _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(size, magic)), _mm512_castps_si512(magic));
  code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(size, _mm512_set1_ps(f.least), _CMP_LT_OQ), small);
  code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(size, _mm512_set1_ps(f.max), _CMP_GE_OQ),
                               _mm512_set1_epi32(static_cast<int>(f.top)));
  code = _mm512_mask_mov_epi32(code, _mm512_cmp_ps_mask(size, size, _CMP_UNORD_Q), _mm512_set1_epi32(0x7f));
  return _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80)));
}
FOVEA_INLINE void store_codes(void* p, __m512i codes, int n) {
  _mm512_mask_cvtepi32_storeu_epi8(p, static_cast<__mmask16>((1u << n) - 1u), codes);
}
FOVEA_INLINE void store_n(int8_t* p, Vec a, int n) {
  store_codes(p, _mm512_cvtps_epi32(a.v), n);
}
/// Bit i of `bits` set ? x : y in lane i.
FOVEA_INLINE Vec select_bits(uint32_t bits, Vec x, Vec y) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(bits), y.v, x.v)};
}
FOVEA_INLINE Vec lane_index() {
  return {_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
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
FOVEA_INLINE __m128i load_halves(const void* p, int n) {
  if (n == 8) return _mm_loadu_si128(static_cast<const __m128i*>(p));
  alignas(16) uint16_t lanes[8] = {};
  for (int i = 0; i < n; ++i)
    lanes[i] = static_cast<const uint16_t*>(p)[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes));
}
FOVEA_INLINE void store_halves(void* p, __m128i half, int n) {
  if (n == 8) return _mm_storeu_si128(static_cast<__m128i*>(p), half);
  alignas(16) uint16_t lanes[8];
  _mm_store_si128(reinterpret_cast<__m128i*>(lanes), half);
  for (int i = 0; i < n; ++i)
    static_cast<uint16_t*>(p)[i] = lanes[i];
}
FOVEA_INLINE Vec load_n(const bf16* p, int n) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p, n)), 16))};
}
FOVEA_INLINE Vec load_n(const fp16* p, int n) {
  return {_mm256_cvtph_ps(load_halves(p, n))};
}
FOVEA_INLINE void store_n(bf16* p, Vec a, int n) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  store_halves(p, _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)), n);
}
FOVEA_INLINE void store_n(fp16* p, Vec a, int n) {
  store_halves(p, _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), n);
}
FOVEA_INLINE Vec widen_codes(const e4m3*, __m128i codes) {
  const __m128i words = _mm_slli_epi16(_mm_cvtepi8_epi16(codes), 7);
  const __m128i largest = _mm_set1_epi16(0x3f80);
  const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(words, largest), largest);
  const __m128i halves = _mm_and_si128(words, _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  return {_mm256_cvtph_ps(_mm_or_si128(halves, _mm_and_si128(nan, _mm_set1_epi16(0x7e00))))};
}
FOVEA_INLINE Vec widen_codes(const e5m2*, __m128i codes) {
  return {_mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(codes), 8))};
}
FOVEA_INLINE Vec widen_codes(const int8_t*, __m128i codes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes))};
}
template <class T>
FOVEA_INLINE Vec load_codes(const T* p, int n) {
  uint64_t codes = 0;
  if (n == 8) {
    __builtin_memcpy(&codes, p, 8);
  } else {
    for (int i = 0; i < n; ++i)
      codes |= static_cast<uint64_t>(reinterpret_cast<const uint8_t*>(p)[i]) << (8 * i);
  }
  return widen_codes(p, _mm_cvtsi64_si128(static_cast<int64_t>(codes)));
}
FOVEA_INLINE __m256i fp8_codes(Vec a, const Fp8Format& f) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256 size = _mm256_castsi256_ps(magnitude);
  const __m128i drop = _mm_cvtsi32_si128(static_cast<int>(f.drop));
  const __m256i odd = _mm256_and_si256(_mm256_srl_epi32(magnitude, drop), _mm256_set1_epi32(1));
  const __m256i half = _mm256_set1_epi32((1 << (f.drop - 1)) - 1);
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, half), odd);
  __m256i code =
      _mm256_sub_epi32(_mm256_srl_epi32(rounded, drop), _mm256_set1_epi32(static_cast<int>(f.bias)));
  const __m256 magic = _mm256_set1_ps(f.magic);
  const __m256i small =
      _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(size, magic)), _mm256_castps_si256(magic));
  const auto put = [&code](__m256 where, __m256i what) __attribute__((always_inline)) {
    code = _mm256_blendv_epi8(code, what, _mm256_castps_si256(where));
  };
  put(_mm256_cmp_ps(size, _mm256_set1_ps(f.least), _CMP_LT_OQ), small);
  put(_mm256_cmp_ps(size, _mm256_set1_ps(f.max), _CMP_GE_OQ), _mm256_set1_epi32(static_cast<int>(f.top)));
  put(_mm256_cmp_ps(size, size, _CMP_UNORD_Q), _mm256_set1_epi32(0x7f));
  return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}
FOVEA_INLINE void store_codes(void* p, __m256i codes, int n) {
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi32(0xff));
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  const auto bytes = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(words, words)));
  if (n == 8) {
    __builtin_memcpy(p, &bytes, 8);
  } else {
    for (int i = 0; i < n; ++i)
      static_cast<uint8_t*>(p)[i] = static_cast<uint8_t>(bytes >> (8 * i));
  }
}
FOVEA_INLINE void store_n(int8_t* p, Vec a, int n) {
  store_codes(p, _mm256_cvtps_epi32(a.v), n);
}
FOVEA_INLINE Vec select_bits(uint32_t bits, Vec x, Vec y) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane);
  return {_mm256_blendv_ps(y.v, x.v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane)))};
}
FOVEA_INLINE Vec lane_index() {
  return {_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)};
}

#else

struct Vec {
  static constexpr int kLanes = 4;
  float v __attribute__((vector_size(16)));  // an SSE register on plain x86-64
};
#define FOVEA_LANES(expr)     \
  Vec r;                      \
  for (int i = 0; i < 4; ++i) \
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
  uint32_t words __attribute__((vector_size(16)));
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
  FOVEA_LANES(n.v[i] == n.v[i] ? __builtin_ldexpf(a.v[i], static_cast<int>(n.v[i])) : a.v[i]);
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
FOVEA_INLINE Vec load_n(const bf16* p, int n) {
  FOVEA_LANES(i < n ? bf16_to_float(p[i].bits) : 0.0f);
}
FOVEA_INLINE Vec load_n(const fp16* p, int n) {
  FOVEA_LANES(i < n ? fp16_to_float(p[i].bits) : 0.0f);
}
FOVEA_INLINE void store_n(bf16* p, Vec a, int n) {
  for (int i = 0; i < n; ++i)
    p[i].bits = float_to_bf16(a.v[i]);
}
FOVEA_INLINE void store_n(fp16* p, Vec a, int n) {
  for (int i = 0; i < n; ++i)
    p[i].bits = float_to_fp16(a.v[i]);
}
FOVEA_INLINE float widen_code(e4m3 code) {
  return e4m3_to_float(code.bits) * 0x1p-8f;
}
FOVEA_INLINE float widen_code(e5m2 code) {
  return e5m2_to_float(code.bits);
}
FOVEA_INLINE float widen_code(int8_t code) {
  return static_cast<float>(code);
}
template <class T>
FOVEA_INLINE Vec load_codes(const T* p, int n) {
  FOVEA_LANES(i < n ? widen_code(p[i]) : 0.0f);
}
FOVEA_INLINE void store_n(e4m3* p, Vec a, int n) {
  for (int i = 0; i < n; ++i)
    p[i].bits = float_to_e4m3(a.v[i]);
}
FOVEA_INLINE void store_n(e5m2* p, Vec a, int n) {
  for (int i = 0; i < n; ++i)
    p[i].bits = float_to_e5m2(a.v[i]);
}
FOVEA_INLINE void store_n(int8_t* p, Vec a, int n) {
  for (int i = 0; i < n; ++i)
    p[i] = static_cast<int8_t>(__builtin_rintf(a.v[i]));
}
FOVEA_INLINE Vec select_bits(uint32_t bits, Vec x, Vec y) {
  FOVEA_LANES((bits >> i) & 1u ? x.v[i] : y.v[i]);
}
FOVEA_INLINE Vec lane_index() {
  FOVEA_LANES(static_cast<float>(i));
}
#undef FOVEA_LANES

#endif

#if defined(__AVX512F__) || defined(__AVX2__)
/// The first n lanes as base/float8.h writes them.
FOVEA_INLINE void store_n(e4m3* p, Vec a, int n) {
  store_codes(p, fp8_codes(a, {20, 120u << 3, kE4m3Max, 0x1p-6f, 0x1p14f, 0x7e}), n);
}
FOVEA_INLINE void store_n(e5m2* p, Vec a, int n) {
  store_codes(p, fp8_codes(a, {21, 112u << 2, kE5m2Max, 0x1p-14f, 0x1p7f, 0x7b}), n);
}
#endif
FOVEA_INLINE Vec load(const e4m3* p) {
  return load_codes(p, Vec::kLanes);
}
FOVEA_INLINE Vec load(const e5m2* p) {
  return load_codes(p, Vec::kLanes);
}
FOVEA_INLINE Vec load(const int8_t* p) {
  return load_codes(p, Vec::kLanes);
}
FOVEA_INLINE Vec load_n(const e4m3* p, int n) {
  return load_codes(p, n);
}
FOVEA_INLINE Vec load_n(const e5m2* p, int n) {
  return load_codes(p, n);
}
FOVEA_INLINE Vec load_n(const int8_t* p, int n) {
  return load_codes(p, n);
}

/// Sum of all lanes by halves: lane i + lane i + kLanes / 2, and so on. The order never varies.
FOVEA_INLINE float reduce_add(Vec a) {
  float lanes[Vec::kLanes];
  store(lanes, a);
  for (int half = Vec::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      lanes[i] += lanes[i + half];
  return lanes[0];
}

/// Lane i = reduce_add(a[i]), bit for bit: the same tree, run on kLanes vectors at once.
FOVEA_INLINE Vec reduce_add_all(const Vec (&a)[Vec::kLanes]) {
#if defined(__AVX512F__)
  // Each step adds the upper to the lower half of what is left of every vector and packs two results into
  // one.
  __m512 h[8], q[4];
#pragma GCC unroll 8
  for (int64_t i = 0; i < 8; ++i) {  // inputs in the order that the two in-lane steps below undo
    const __m512 x = a[8 * (i % 2) + i / 2].v, y = a[8 * (i % 2) + 4 + i / 2].v;
    h[i] = _mm512_add_ps(_mm512_mask_blend_ps(0xff00, x, y), _mm512_shuffle_f32x4(x, y, 0x4e));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    q[i] = _mm512_add_ps(_mm512_shuffle_f32x4(h[2 * i], h[2 * i + 1], 0x88),
                         _mm512_shuffle_f32x4(h[2 * i], h[2 * i + 1], 0xdd));
  const auto pair = [](__m512 x, __m512 y) __attribute__((always_inline)) {
    const __m512d dx = _mm512_castps_pd(x), dy = _mm512_castps_pd(y);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(dx, dy)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(dx, dy)));
  };
  const __m512 x = pair(q[0], q[1]), y = pair(q[2], q[3]);
  return {_mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd))};
#elif defined(__AVX2__)
  __m256 h[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256 x = a[i].v, y = a[i + 4].v;
    h[i] = _mm256_add_ps(_mm256_blend_ps(x, y, 0xf0), _mm256_permute2f128_ps(x, y, 0x21));
  }
  const auto pair = [](__m256 x, __m256 y) __attribute__((always_inline)) {
    const __m256d dx = _mm256_castps_pd(x), dy = _mm256_castps_pd(y);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(dx, dy)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(dx, dy)));
  };
  const __m256 x = pair(h[0], h[1]), y = pair(h[2], h[3]);
  return {_mm256_add_ps(_mm256_shuffle_ps(x, y, 0x88), _mm256_shuffle_ps(x, y, 0xdd))};
#else
  Vec r;
  for (int i = 0; i < Vec::kLanes; ++i)
    r.v[i] = reduce_add(a[i]);
  return r;
#endif
}

/// Row i, lane j <-> row j, lane i.
FOVEA_INLINE void transpose(Vec (&a)[Vec::kLanes]) {
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
  using Register = __m512;
#define FOVEA_MM(name) _mm512_##name
#else
  using Register = __m256;
#define FOVEA_MM(name) _mm256_##name
#endif
  // In each 128-bit lane the 4 x 4 blocks of four rows are transposed: q[4 i + k], lane l = column 4 l + k of
  // the rows 4 i .. 4 i + 3. Then lanes go to their places.
  Register q[Vec::kLanes];
  const auto pair = [](Register x, Register y, bool high) __attribute__((always_inline)) {
    const auto dx = FOVEA_MM(castps_pd)(x), dy = FOVEA_MM(castps_pd)(y);
    return FOVEA_MM(castpd_ps)(high ? FOVEA_MM(unpackhi_pd)(dx, dy) : FOVEA_MM(unpacklo_pd)(dx, dy));
  };
#pragma GCC unroll 4
  for (int i = 0; i < Vec::kLanes; i += 4) {
    const Register low0 = FOVEA_MM(unpacklo_ps)(a[i].v, a[i + 1].v);
    const Register high0 = FOVEA_MM(unpackhi_ps)(a[i].v, a[i + 1].v);
    const Register low1 = FOVEA_MM(unpacklo_ps)(a[i + 2].v, a[i + 3].v);
    const Register high1 = FOVEA_MM(unpackhi_ps)(a[i + 2].v, a[i + 3].v);
    q[i] = pair(low0, low1, false);
    q[i + 1] = pair(low0, low1, true);
    q[i + 2] = pair(high0, high1, false);
    q[i + 3] = pair(high0, high1, true);
  }
#undef FOVEA_MM
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
#if defined(__AVX512F__)
    const __m512 even0 = _mm512_shuffle_f32x4(q[k], q[4 + k], 0x88);
    const __m512 odd0 = _mm512_shuffle_f32x4(q[k], q[4 + k], 0xdd);
    const __m512 even1 = _mm512_shuffle_f32x4(q[8 + k], q[12 + k], 0x88);
    const __m512 odd1 = _mm512_shuffle_f32x4(q[8 + k], q[12 + k], 0xdd);
    a[k].v = _mm512_shuffle_f32x4(even0, even1, 0x88);
    a[4 + k].v = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    a[8 + k].v = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    a[12 + k].v = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
#else
    a[k].v = _mm256_permute2f128_ps(q[k], q[4 + k], 0x20);
    a[4 + k].v = _mm256_permute2f128_ps(q[k], q[4 + k], 0x31);
#endif
  }
#else
  for (int i = 0; i < Vec::kLanes; ++i)
    for (int j = 0; j < i; ++j) {
      const float x = a[i].v[j];
      a[i].v[j] = a[j].v[i];
      a[j].v[i] = x;
    }
#endif
}

FOVEA_INLINE float reduce_max(Vec a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a.v);
#elif defined(__AVX2__)
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
#else
  float m = a.v[0];
  for (int i = 1; i < Vec::kLanes; ++i)
    m = m > a.v[i] ? m : a.v[i];
  return m;
#endif
}

/// e^x. Cephes' expf: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 split in two so that r is exact to 1 ulp,
/// then a degree-5 polynomial for (e^r - 1 - r) / r^2; about 1 ulp. Below -104 the result is 0; NaN
/// stays NaN (min and max return their second operand then).
FOVEA_INLINE Vec exp(Vec x) {
  const Vec clamped = max(set1(-104.0f), min(set1(88.72f), x));
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

/// tanh, saturating, about 2 ulp. Below 0.625 Cephes' tanhf: x + x^3 P(x^2); else 1 - 2 / (e^2x + 1), whose
/// subtraction no longer cancels. NaN stays NaN.
FOVEA_INLINE Vec tanh(Vec x) {
  const Vec magnitude = max(zero() - x, x);
  const Vec z = x * x;
  Vec p = set1(-5.70498872745e-3f);
  p = fma(p, z, set1(2.06390887954e-2f));
  p = fma(p, z, set1(-5.37397155531e-2f));
  p = fma(p, z, set1(1.33314422036e-1f));
  p = fma(p, z, set1(-3.33332819422e-1f));
  const Vec small = fma(p * z, x, x);
  Vec large = set1(1.0f) - set1(2.0f) / (exp(magnitude + magnitude) + set1(1.0f));
  large = select_less(x, zero(), zero() - large, large);
  return select_less(magnitude, set1(0.625f), small, large);
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
