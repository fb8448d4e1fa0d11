#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/thread_pool.h"
#include "kernels/cpu/ops.h"

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

// Llama 4 Scout's numbers: a step instead of a blend, at a wavelength of 8192.
TEST(Rope, Llama3WithoutABlend) {
  RopeConfig rope = {.theta = 5e5,
                     .scaling = RopeScaling::llama3,
                     .factor = 16,
                     .low_freq_factor = 1,
                     .high_freq_factor = 1,
                     .original_max_position = 8192};
  const auto plain = rope_frequencies({.theta = 5e5}, 128);
  const auto scaled = rope_frequencies(rope, 128);
  for (size_t t = 0; t < 64; ++t)
    EXPECT_DOUBLE_EQ(scaled[t] / plain[t], t <= 34 ? 1.0 : 1.0 / 16) << t;
  // 2 pi / 1 is the first wavelength; factors that put the step exactly there must not divide 0 by 0.
  rope.low_freq_factor = rope.high_freq_factor = 8192 / (2 * std::numbers::pi);
  EXPECT_DOUBLE_EQ(rope_frequencies(rope, 128)[0], 1.0 / 16);
}

// Ratios by hand from the published formula: the ramp runs from dimension 23 to 40 (Qwen2.5's numbers), and
// without truncation from 8.09 to 17.40 (gpt-oss's numbers).
TEST(Rope, YarnIsARampBetweenKeptAndDivided) {
  RopeConfig rope = {.theta = 1e6, .scaling = RopeScaling::yarn, .factor = 4, .original_max_position = 32768};
  const auto ratio = [&](int dim, size_t t) {
    return rope_frequencies(rope, dim)[t] / rope_frequencies({.theta = rope.theta}, dim)[t];
  };
  EXPECT_DOUBLE_EQ(ratio(128, 0), 1.0);
  EXPECT_DOUBLE_EQ(ratio(128, 23), 1.0);
  EXPECT_NEAR(ratio(128, 24), 0.9558823529, 1e-9);
  EXPECT_NEAR(ratio(128, 39), 0.2941176471, 1e-9);
  EXPECT_DOUBLE_EQ(ratio(128, 40), 0.25);
  EXPECT_DOUBLE_EQ(ratio(128, 63), 0.25);
  rope.theta = 150000;
  rope.factor = 32;
  rope.original_max_position = 4096;
  rope.truncate = false;
  EXPECT_DOUBLE_EQ(ratio(64, 8), 1.0);
  EXPECT_NEAR(ratio(64, 9), 0.9055510956, 1e-9);
  EXPECT_NEAR(ratio(64, 17), 0.072687514, 1e-9);
  EXPECT_DOUBLE_EQ(ratio(64, 18), 0.03125);
}

TEST(Rope, PartOfAHeadRotatesAsAHeadOfThatSize) {
  const auto part = rope_frequencies({.theta = 1e4, .rotary_dim = 16}, 64);
  EXPECT_EQ(part, rope_frequencies({.theta = 1e4}, 16));
}

TEST(Rope, LongropeDividesByTheChosenList) {
  RopeConfig rope = {
      .scaling = RopeScaling::longrope, .short_divisors = {1, 2, 3, 4}, .long_divisors = {5, 6, 7, 8}};
  const auto plain = rope_frequencies({}, 8), small = rope_frequencies(rope, 8);
  rope.long_context = true;
  const auto large = rope_frequencies(rope, 8);
  for (size_t t = 0; t < 4; ++t) {
    EXPECT_DOUBLE_EQ(small[t], plain[t] / (1.0 + static_cast<double>(t)));
    EXPECT_DOUBLE_EQ(large[t], plain[t] / (5.0 + static_cast<double>(t)));
  }
}

TEST(Rope, TheAttentionFactorMultipliesBoth) {
  const auto f = rope_frequencies({}, 4);
  const int32_t positions[] = {0, 3};
  float cos[4], sin[4];
  ThreadPool pool(1);
  rope_rows(f, 1.25, positions, cos, sin, pool);
  EXPECT_EQ(cos[0], 1.25f);
  EXPECT_EQ(sin[0], 0.0f);
  EXPECT_EQ(cos[2], static_cast<float>(1.25 * std::cos(3.0)));
  EXPECT_EQ(sin[2], static_cast<float>(1.25 * std::sin(3.0)));
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
