#pragma once
// The arithmetic of sampling and log probabilities, the same bits on the CPU and on the GPU: exponentials by
// separately rounded fp32 multiplications and additions, and sums of weights as integers. Integer sums are
// exact and associative, so that total, top_p mass and the token at a point of the cumulative distribution do
// not depend on the order of summation.
#include <cstdint>

#include "base/host_device.h"
#ifndef __CUDA_ARCH__
#include <bit>
#include <cmath>
#endif

namespace fovea::sample_math {

/// A weight w in [0, 1] is stored as round(w 2^43): 2^20 of them sum to at most 2^63. Weights below 2^-44 of
/// the largest (z < -30.5) are 0.
inline constexpr int kWeightBits = 43;
inline constexpr float kWeightOne = 0x1p43f;

// Constants of scaled_weight(). At kLowestZ and below weights are 0.
inline constexpr float kLowestZ = -40.0f;
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr int32_t kRoundMagicBits = 0x4b400000;
inline constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // products with n are exact

// Operations that round once each: nvcc would fuse them.
#ifdef __CUDA_ARCH__
FOVEA_HOST_DEVICE inline float mul(float a, float b) {
  return __fmul_rn(a, b);
}
FOVEA_HOST_DEVICE inline float add(float a, float b) {
  return __fadd_rn(a, b);
}
FOVEA_HOST_DEVICE inline float sub(float a, float b) {
  return __fsub_rn(a, b);
}
FOVEA_HOST_DEVICE inline float div(float a, float b) {
  return __fdiv_rn(a, b);
}
FOVEA_HOST_DEVICE inline double mul(double a, double b) {
  return __dmul_rn(a, b);
}
FOVEA_HOST_DEVICE inline double add(double a, double b) {
  return __dadd_rn(a, b);
}
FOVEA_HOST_DEVICE inline double sub(double a, double b) {
  return __dsub_rn(a, b);
}
FOVEA_HOST_DEVICE inline double div(double a, double b) {
  return __ddiv_rn(a, b);
}
FOVEA_HOST_DEVICE inline uint32_t to_bits(float x) {
  return __float_as_uint(x);
}
FOVEA_HOST_DEVICE inline float from_bits(uint32_t x) {
  return __uint_as_float(x);
}
FOVEA_HOST_DEVICE inline uint64_t to_bits(double x) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}
FOVEA_HOST_DEVICE inline double from_bits(uint64_t x) {
  return __longlong_as_double(static_cast<long long>(x));
}
FOVEA_HOST_DEVICE inline double to_double(uint64_t x) {
  return __ull2double_rn(x);
}
FOVEA_HOST_DEVICE inline uint64_t mul_high(uint64_t a, uint64_t b) {
  return __umul64hi(a, b);
}
#else
inline float mul(float a, float b) {
  return a * b;
}
inline float add(float a, float b) {
  return a + b;
}
inline float sub(float a, float b) {
  return a - b;
}
inline float div(float a, float b) {
  return a / b;
}
inline double mul(double a, double b) {
  return a * b;
}
inline double add(double a, double b) {
  return a + b;
}
inline double sub(double a, double b) {
  return a - b;
}
inline double div(double a, double b) {
  return a / b;
}
inline uint32_t to_bits(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float from_bits(uint32_t x) {
  return std::bit_cast<float>(x);
}
inline uint64_t to_bits(double x) {
  return std::bit_cast<uint64_t>(x);
}
inline double from_bits(uint64_t x) {
  return std::bit_cast<double>(x);
}
inline double to_double(uint64_t x) {
  return static_cast<double>(x);
}
inline uint64_t mul_high(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(a) * b >> 64);
}
#endif

/// e^z 2^43 for z = (x - max) * scale, x <= max: about 2 ulp, exactly 2^43 at z = 0, never increasing as x
/// falls. Cephes' expf without fusing: z = n ln 2 + r, e^r = 1 + r + r^2 P(r).
FOVEA_HOST_DEVICE inline float scaled_weight(float x, float max, float scale) {
  float z = mul(sub(x, max), scale);
#ifdef __CUDA_ARCH__
  z = fmaxf(z, kLowestZ);  // one instruction; NaN (-inf times 0) becomes kLowestZ, as below
#else
  z = z > kLowestZ ? z : kLowestZ;
#endif
  const float t = add(mul(z, kLog2E), kRoundMagic);
  const int32_t n = static_cast<int32_t>(to_bits(t)) - kRoundMagicBits;
  const float whole = sub(t, kRoundMagic);
#ifdef __CUDA_ARCH__
  const float high = __fmaf_rn(whole, -kLn2High, z);  // the product is exact, so the same as below
#else
  const float high = sub(z, mul(whole, kLn2High));
#endif
  const float r = sub(high, mul(whole, kLn2Low));
  float p = 1.9875691500e-4f;
  p = add(mul(p, r), 1.3981999507e-3f);
  p = add(mul(p, r), 8.3334519073e-3f);
  p = add(mul(p, r), 4.1665795894e-2f);
  p = add(mul(p, r), 1.6666665459e-1f);
  p = add(mul(p, r), 5.0000001201e-1f);
  p = add(mul(p, mul(r, r)), add(r, 1.0f));
  return from_bits(to_bits(p) + (static_cast<uint32_t>(n + kWeightBits) << 23));
}

/// round(w), to even on a tie, for w in [0, 2^51).
FOVEA_HOST_DEVICE inline uint64_t round_weight(float w) {
#ifdef __CUDA_ARCH__
  return __float2ull_rn(w);
#else
  return to_bits(static_cast<double>(w) + 0x1p52) & 0xfffffffffffffu;
#endif
}

/// The weight of x; 0 where it is below `least` = min_p 2^43.
FOVEA_HOST_DEVICE inline uint64_t fixed_weight(float x, float max, float scale, float least = 0.0f) {
  const float w = scaled_weight(x, max, scale);
  return w >= least ? round_weight(w) : 0;
}

/// What fixed_weight() takes for min_p.
FOVEA_HOST_DEVICE inline float least_weight(float min_p) {
  return min_p > 0 ? mul(min_p < 1 ? min_p : 1.0f, kWeightOne) : 0.0f;
}

/// The order of floats as integers: a < b exactly if order_key(a) < order_key(b); -0 and +0 are equal. Not
/// for NaN.
FOVEA_HOST_DEVICE inline uint32_t order_key(float x) {
  const uint32_t bits = to_bits(add(x, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
FOVEA_HOST_DEVICE inline float from_order_key(uint32_t key) {
  return from_bits(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}
inline constexpr uint32_t kLowestKey = 0x007fffffu;  ///< of -inf

/// The least mass that top_p < 1 keeps of `total` > 0: ceil(top_p * total), at least 1. A token is kept if
/// the tokens before it have less.
FOVEA_HOST_DEVICE inline uint64_t top_p_mass(float top_p, uint64_t total) {
#ifdef __CUDA_ARCH__
  const uint64_t p = __float2ull_rz(__fmul_rn(top_p, 0x1p64f));
#else
  const uint64_t p = static_cast<uint64_t>(top_p * 0x1p64f);
#endif
  const uint64_t mass = mul_high(p, total) + (p * total != 0);
  return mass > 0 ? mass : 1;
}

/// floor(uniform * total) for a uniform number of `bits` / 2^53: the token drawn is the first whose
/// cumulative mass is above it.
FOVEA_HOST_DEVICE inline uint64_t draw_target(uint64_t bits, uint64_t total) {
  return mul_high(bits << 11, total);
}

/// Natural logarithm of sum / 2^43, sum > 0, in fp64, within 2 ulp of the larger of it and its terms: m 2^e
/// with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(f), f = (m - 1) / (m + 1), as a series.
FOVEA_HOST_DEVICE inline double log_weight_sum(uint64_t sum) {
  const uint64_t bits = to_bits(to_double(sum));
  int e = static_cast<int>(bits >> 52) - 1023;
  double m = from_bits((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m = mul(m, 0.5);
    ++e;
  }
  const double f = div(sub(m, 1.0), add(m, 1.0));
  const double s = mul(f, f);
  double p = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2)
    p = add(mul(p, s), div(1.0, static_cast<double>(k)));
  const double log_m = add(mul(2.0, f), mul(mul(2.0, f), mul(p, s)));
  const auto n = static_cast<double>(e - kWeightBits);
  // The high part has 32 bits, so that its product with n is exact.
  return add(mul(n, 0.6931471803691238), add(mul(n, 1.9082149292705877e-10), log_m));
}

/// Log probability of logit x, where `log_sum` = log_weight_sum() of the row's weights at scale 1.
FOVEA_HOST_DEVICE inline float log_probability(float x, float max, double log_sum) {
  const double logit = add(static_cast<double>(x), 0.0);  // -0 as +0
  return static_cast<float>(sub(logit, add(static_cast<double>(max), log_sum)));
}

}  // namespace fovea::sample_math
