#include "base/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fovea {
namespace {

float next_up(float x) {
  return std::nextafter(x, INFINITY);
}
float next_down(float x) {
  return std::nextafter(x, -INFINITY);
}

// A half from the definition: (1 + mantissa / 1024) 2^(exponent - 15), or mantissa / 1024 2^-14.
double half_value(int bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double magnitude = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Nearest of the sorted non-negative halves by search, ties to even; 65520 is the tie with "65536".
uint16_t nearest_half(float value) {
  static const std::vector<double> halves = [] {
    std::vector<double> v;
    for (int bits = 0; bits < 0x7c00; ++bits)
      v.push_back(half_value(bits));
    return v;
  }();
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  const int above =
      static_cast<int>(std::upper_bound(halves.begin(), halves.end(), magnitude) - halves.begin());
  int best = above - 1;
  if (above < 0x7c00) {
    const double down = magnitude - half_value(above - 1), up = half_value(above) - magnitude;
    if (up < down || (up == down && above % 2 == 0)) best = above;
  }
  return static_cast<uint16_t>(sign | best);
}

std::vector<float> interesting_floats() {
  std::vector<float> values = {65504.0f, 65519.996f, 65520.0f, 65536.0f,
                               1e30f,    INFINITY,   0x1p-25f, 0x1p-149f};
  for (int bits = 0; bits < 0x7bff; ++bits) {  // each fp16 value, each midpoint, and their neighbours
    const auto exact = static_cast<float>(half_value(bits));
    const auto middle = static_cast<float>((half_value(bits) + half_value(bits + 1)) / 2);
    for (float v : {exact, middle})
      for (float w : {next_down(v), v, next_up(v)})
        values.push_back(w);
  }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto v = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(v)) values.push_back(v);
  }
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i)
    values.push_back(-values[i]);
  return values;
}

TEST(Float16, EveryHalfIsReadByItsDefinitionAndComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = fp16_to_float(half);
    if ((bits & 0x7c00) != 0x7c00) {
      ASSERT_EQ(value, half_value(bits)) << bits;
      ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    } else if (bits & 1023) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE((float_to_fp16(value) & 0x7c00) == 0x7c00 && (float_to_fp16(value) & 1023) != 0) << bits;
      continue;
    } else {
      ASSERT_EQ(value, bits & 0x8000 ? -INFINITY : INFINITY);
    }
    ASSERT_EQ(float_to_fp16(value), half) << bits;
  }
}

TEST(Float16, RoundsToNearestEvenLikeASearch) {
  for (float v : interesting_floats())
    ASSERT_EQ(float_to_fp16(v), nearest_half(v)) << std::hexfloat << v;
}

TEST(Float16, EveryBf16ComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    else
      ASSERT_EQ(float_to_bf16(value), bits);
  }
}

TEST(Float16, Bf16RoundsToNearestEven) {
  for (float v : interesting_floats()) {
    if (std::isinf(v)) continue;
    // The nearer of the two bf16 values around v; above the largest finite one, the neighbour is 2^128.
    const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16);
    const double toward_zero = bf16_to_float(bits);
    const bool top = (bits & 0x7fff) == 0x7f7f;
    const double away =
        top ? std::copysign(0x1p128, toward_zero) : bf16_to_float(static_cast<uint16_t>(bits + 1));
    const double down = std::fabs(v - toward_zero), up = std::fabs(away - v);
    const bool take_away = up < down || (up == down && bits % 2 == 1);
    ASSERT_EQ(float_to_bf16(v), bits + (take_away ? 1 : 0)) << std::hexfloat << v;
  }
}

TEST(Float16, NanStaysNan) {
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0x7f80ffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(nan))));
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(nan))));
  }
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) uint16_t hardware_half(float v) {
  return static_cast<uint16_t>(_cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT));
}
__attribute__((target("avx,f16c"))) float hardware_float(uint16_t bits) {
  return _cvtsh_ss(bits);
}
TEST(Float16, AgreesWithTheHardware) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "no F16C here";
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = hardware_float(half);
    if (!std::isnan(value)) {
      ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(fp16_to_float(half)));
    }
  }
  for (float v : interesting_floats())
    ASSERT_EQ(float_to_fp16(v), hardware_half(v)) << std::hexfloat << v;
}
#endif

}  // namespace
}  // namespace fovea
