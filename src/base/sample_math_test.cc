#include "base/sample_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fovea::sample_math {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(SampleMath, WeightsAreWithinTwoUlpOfTheExponential) {
  EXPECT_EQ(scaled_weight(3, 3, 0.7f), kWeightOne);
  double worst = 0;
  for (uint32_t bits = to_bits(-0.0f); from_bits(bits) > -31; bits += 1009) {
    const float z = from_bits(bits);
    const double exact = std::exp(static_cast<double>(z)) * 0x1p43;
    worst = std::max(worst, std::abs(static_cast<double>(scaled_weight(z, 0, 1)) - exact) / exact);
  }
  EXPECT_LT(worst, 0x1p-23);
  EXPECT_GT(worst, 0);  // it is computed, not a library's correctly rounded exp
}

TEST(SampleMath, MaskedAndDistantLogitsWeighNothing) {
  EXPECT_EQ(fixed_weight(-kInf, 1, 1), 0u);
  EXPECT_EQ(fixed_weight(-kInf, 1, 0), 0u);  // NaN on the way
  EXPECT_EQ(fixed_weight(-3e38f, 3e38f, 1e5f), 0u);
  EXPECT_EQ(fixed_weight(-30.6f, 0, 1), 0u);
  EXPECT_EQ(fixed_weight(-30.4f, 0, 1), 1u);
  EXPECT_EQ(fixed_weight(-1, 0, 1, kWeightOne), 0u);
  EXPECT_EQ(fixed_weight(0, 0, 1, kWeightOne), uint64_t{1} << kWeightBits);
}

TEST(SampleMath, RoundsToEven) {
  for (const auto& [w, rounded] :
       {std::pair{0.5f, 0u}, {1.5f, 2u}, {2.5f, 2u}, {2.75f, 3u}, {1e6f, 1000000u}})
    EXPECT_EQ(round_weight(w), rounded) << w;
}

TEST(SampleMath, KeysAreInTheOrderOfFloats) {
  const std::vector<float> ascending = {-kInf, -3e38f, -1, -1e-40f, 0, 1e-40f, 1e-38f, 1, 1.5f, 3e38f, kInf};
  for (size_t i = 1; i < ascending.size(); ++i)
    EXPECT_LT(order_key(ascending[i - 1]), order_key(ascending[i])) << i;
  for (const float x : ascending)
    EXPECT_EQ(from_order_key(order_key(x)), x);
  EXPECT_EQ(order_key(-0.0f), order_key(0.0f));
  EXPECT_EQ(order_key(-kInf), kLowestKey);
}

TEST(SampleMath, TopPMassIsTheCeilingOfTheProduct) {
  EXPECT_EQ(top_p_mass(0.5f, 10), 5u);
  EXPECT_EQ(top_p_mass(0.5f, 11), 6u);
  EXPECT_EQ(top_p_mass(0x1p-30f, 10), 1u);
  EXPECT_EQ(top_p_mass(1e-30f, uint64_t{1} << 63), 1u);
  EXPECT_EQ(top_p_mass(1 - 0x1p-24f, uint64_t{1} << 63), (uint64_t{1} << 63) - (uint64_t{1} << 39));
}

TEST(SampleMath, TargetsCoverTheMass) {
  const uint64_t last = (uint64_t{1} << 53) - 1, total = uint64_t{1} << 63;
  EXPECT_EQ(draw_target(0, total), 0u);
  EXPECT_LT(draw_target(last, total), total);
  EXPECT_EQ(draw_target(last, 7), 6u);
  EXPECT_EQ(draw_target(uint64_t{1} << 52, 7), 3u);
}

TEST(SampleMath, LogarithmsAreExactToAFewUlp) {
  EXPECT_EQ(log_weight_sum(uint64_t{1} << kWeightBits), 0);
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t sum = (rng() >> 1 >> rng() % 21) | uint64_t{1} << kWeightBits;
    const long double exact = std::log(static_cast<long double>(sum)) - kWeightBits * std::log(2.0L);
    ASSERT_NEAR(log_weight_sum(sum), static_cast<double>(exact), 4e-16 * (1 + static_cast<double>(exact)))
        << sum;
  }
}

}  // namespace
}  // namespace fovea::sample_math
