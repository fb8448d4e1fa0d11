#include "base/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace fovea {
namespace {

/// A format by its definition: sign, exponent, mantissa; the bias is 2^(exponent bits - 1) - 1.
struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  uint8_t max;  // code of the largest finite number
  bool (*is_nan)(uint8_t magnitude);
  bool (*is_inf)(uint8_t magnitude);
  float (*read)(uint8_t);
  uint8_t (*write)(float);

  double value(uint8_t code) const {
    const int magnitude = code & 0x7f, exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
    const double size = exponent == 0
                            ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                            : std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
    return code & 0x80 ? -size : size;
  }
};

const Format kFormats[] = {
    {"e4m3", 4, 3, 0x7e, [](uint8_t m) { return m == 0x7f; }, [](uint8_t) { return false; }, e4m3_to_float,
     float_to_e4m3},
    {"e5m2", 5, 2, 0x7b, [](uint8_t m) { return m > 0x7c; }, [](uint8_t m) { return m == 0x7c; },
     e5m2_to_float, float_to_e5m2},
};

class Float8 : public ::testing::TestWithParam<Format> {};

TEST_P(Float8, EveryCodeIsReadByItsDefinitionAndComesBack) {
  const Format& f = GetParam();
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<uint8_t>(i), magnitude = static_cast<uint8_t>(i & 0x7f);
    const float value = f.read(code);
    EXPECT_EQ(std::signbit(value), i >= 0x80) << i;
    if (f.is_nan(magnitude)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(f.is_nan(f.write(value) & 0x7f)) << i;
      EXPECT_EQ(f.write(value) & 0x80, i & 0x80) << i;
    } else if (f.is_inf(magnitude)) {
      EXPECT_TRUE(std::isinf(value)) << i;
      EXPECT_EQ(f.write(value), (i & 0x80) | f.max) << "infinity is written as the largest number";
    } else {
      EXPECT_EQ(value, f.value(code)) << i;
      EXPECT_EQ(f.write(value), code) << i;
    }
  }
}

TEST_P(Float8, RoundsToNearestEvenAtEveryBoundary) {
  const Format& f = GetParam();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int i = 0; i < f.max; ++i) {  // between code i and i + 1
    const auto low = static_cast<uint8_t>(i), high = static_cast<uint8_t>(i + 1);
    const auto middle = static_cast<float>((f.value(low) + f.value(high)) / 2);  // exact
    for (const int sign : {0, 0x80}) {
      const float s = sign ? -1.0f : 1.0f;
      EXPECT_EQ(f.write(s * std::nextafter(middle, 0.0f)), sign | low) << i;
      EXPECT_EQ(f.write(s * middle), sign | (low % 2 == 0 ? low : high)) << i;
      EXPECT_EQ(f.write(s * std::nextafter(middle, kInf)), sign | high) << i;
    }
  }
  const float max = f.read(f.max);
  for (const float above : {std::nextafter(max, kInf), 1.03f * max, 1.1f * max, 2 * max, 3e38f, kInf}) {
    EXPECT_EQ(f.write(above), f.max) << above;
    EXPECT_EQ(f.write(-above), 0x80 | f.max) << above;
  }
  EXPECT_EQ(f.write(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f.write(-0.0f), 0x80);
}

TEST_P(Float8, NanStaysNanAndKeepsItsSign) {
  const Format& f = GetParam();
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
    EXPECT_EQ(f.write(std::bit_cast<float>(bits)), 0x7f);
    EXPECT_EQ(f.write(std::bit_cast<float>(bits | 0x80000000u)), 0xff);
  }
}

/// No finite code is nearer than the result.
TEST_P(Float8, NoOtherCodeIsNearer) {
  const Format& f = GetParam();
  for (uint64_t bits = 0; bits < 0x7f800000u; bits += 99'991) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const double error = std::abs(f.value(f.write(x)) - std::min<double>(x, f.value(f.max)));
    for (int i = 0; i <= f.max; ++i)
      ASSERT_LE(error, std::abs(f.value(static_cast<uint8_t>(i)) - std::min<double>(x, f.value(f.max)))) << x;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Float8, ::testing::ValuesIn(kFormats),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace fovea
