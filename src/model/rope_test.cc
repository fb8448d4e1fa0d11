#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fovea {
namespace {

TEST(Rope, PlainFrequenciesAreAGeometricSeries) {
  const auto f = rope_frequencies({.theta = 10000.0}, 64);
  ASSERT_EQ(f.size(), 32u);
  EXPECT_DOUBLE_EQ(f[0], 1.0);
  EXPECT_NEAR(f[16], 0.01, 1e-17);
  EXPECT_NEAR(f[8], 0.1, 1e-16);
}

TEST(Rope, LinearDividesAll) {
  const auto plain = rope_frequencies({.theta = 1e6}, 32);
  const auto scaled = rope_frequencies({.theta = 1e6, .scaling = RopeScaling::linear, .factor = 4}, 32);
  for (size_t t = 0; t < plain.size(); ++t)
    EXPECT_DOUBLE_EQ(scaled[t], plain[t] / 4);
}

TEST(Rope, Llama3MatchesTheGoldenRatios) {
  const RopeConfig rope = {.theta = 5e5,
                           .scaling = RopeScaling::llama3,
                           .factor = 8,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_max_position = 8192};
  const auto plain = rope_frequencies({.theta = 5e5}, 128);
  const auto scaled = rope_frequencies(rope, 128);
  for (size_t t = 0; t <= 28; ++t)
    EXPECT_DOUBLE_EQ(scaled[t] / plain[t], 1.0) << t;
  EXPECT_NEAR(scaled[30] / plain[30], 0.6437431331, 1e-9);
  EXPECT_NEAR(scaled[34] / plain[34], 0.1902107436, 1e-9);
  for (size_t t = 35; t < 64; ++t)
    EXPECT_DOUBLE_EQ(scaled[t] / plain[t], 0.125) << t;
}

TEST(Rope, RowsAreExactAtFarPositionsAndIndependentOfOrder) {
  const auto f = rope_frequencies({.theta = 10000.0}, 8);
  const int32_t positions[] = {1'000'000, 0, 7};
  const int32_t alone[] = {7};
  float cos[12], sin[12], cos7[4], sin7[4];
  ThreadPool three(3), one(1);
  rope_rows(f, 1.0, positions, cos, sin, three);
  rope_rows(f, 1.0, alone, cos7, sin7, one);
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(cos[t], static_cast<float>(std::cos(1e6 * f[t])));
    EXPECT_EQ(sin[t], static_cast<float>(std::sin(1e6 * f[t])));
    EXPECT_EQ(cos[4 + t], 1.0f);
    EXPECT_EQ(sin[4 + t], 0.0f);
    EXPECT_EQ(cos[8 + t], cos7[t]);
    EXPECT_EQ(sin[8 + t], sin7[t]);
  }
}

}  // namespace
}  // namespace fovea
