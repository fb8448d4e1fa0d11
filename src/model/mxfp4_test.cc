#include "model/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/float16.h"

namespace fovea {
namespace {

constexpr double kValues[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

TEST(Mxfp4, EveryValueOfEveryScaleIsExact) {
  for (unsigned scale = 0; scale < 255; ++scale)
    for (unsigned value = 0; value < 16; ++value) {
      const double exact = std::ldexp(kValues[value], static_cast<int>(scale) - 127);
      const float got = bf16_to_float(mxfp4_to_bf16(value, scale));
      EXPECT_EQ(std::signbit(got), value >= 8);
      if (std::fabs(exact) >= 0x1p128)
        EXPECT_EQ(std::fabs(got), INFINITY) << scale << " " << value;
      else
        EXPECT_EQ(static_cast<double>(got), exact) << scale << " " << value;
    }
  for (unsigned value = 0; value < 16; ++value)
    EXPECT_TRUE(std::isnan(bf16_to_float(mxfp4_to_bf16(value, 255))));
}

TEST(Mxfp4, BlocksHoldTheLowNibbleFirst) {
  std::mt19937 random(1);
  constexpr int64_t kCount = 9;
  std::vector<std::byte> blocks(kCount * 16), scales(kCount);
  for (std::byte& b : blocks)
    b = static_cast<std::byte>(random());
  for (std::byte& s : scales)
    s = static_cast<std::byte>(random() % 250);
  std::vector<uint16_t> out(kCount * 32 + 1, 0x1234);
  EXPECT_EQ(decode_mxfp4(blocks.data(), scales.data(), kCount, out.data()), std::nullopt);
  for (size_t i = 0; i < kCount * 32; ++i) {
    const auto byte = static_cast<unsigned>(blocks[i / 2]);
    const double value = kValues[i % 2 == 0 ? byte % 16 : byte / 16];
    EXPECT_EQ(static_cast<double>(bf16_to_float(out[i])),
              std::ldexp(value, static_cast<int>(scales[i / 32]) - 127))
        << i;
  }
  EXPECT_EQ(out.back(), 0x1234);
}

TEST(Mxfp4, SaysWhichBlockIsNotFinite) {
  std::vector<uint16_t> out(3 * 32);
  const auto decode = [&](unsigned scale, unsigned value) {
    std::vector<std::byte> blocks(3 * 16, std::byte{0x11}), scales(3, std::byte{127});
    scales[1] = static_cast<std::byte>(scale);
    blocks[16 + 15] = static_cast<std::byte>(value << 4);
    return decode_mxfp4(blocks.data(), scales.data(), 3, out.data());
  };
  for (unsigned value = 0; value < 16; ++value) {
    const double magnitude = std::fabs(kValues[value]);
    EXPECT_EQ(decode(252, value), std::nullopt);
    EXPECT_EQ(decode(253, value).has_value(), magnitude >= 4) << value;
    EXPECT_EQ(decode(254, value).has_value(), magnitude >= 2) << value;
    EXPECT_EQ(decode(255, value), 1);
  }
  EXPECT_EQ(decode(254, 7), 1);
}

}  // namespace
}  // namespace fovea
