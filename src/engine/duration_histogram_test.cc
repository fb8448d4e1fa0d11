#include "engine/duration_histogram.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fovea {
namespace {

TEST(DurationHistogramTest, EmptyIsZero) {
  const DurationHistogram h;
  EXPECT_EQ(h.quantile(0.5), 0);
  EXPECT_EQ(h.max(), 0);
}

TEST(DurationHistogramTest, OneValueIsEveryQuantile) {
  DurationHistogram h;
  h.add(0.0123);
  for (double q : {0.0, 0.5, 0.99, 1.0})
    EXPECT_EQ(h.quantile(q), 0.0123);
}

TEST(DurationHistogramTest, QuantilesAreUpperBoundsWithinATenth) {
  std::mt19937 rng(1);
  std::vector<double> values;
  DurationHistogram h;
  for (int i = 0; i < 2000; ++i) {
    values.push_back(2e-6 * std::pow(1e8, std::uniform_real_distribution<>()(rng)));  // 2 us to 200 s
    h.add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double q : {0.01, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = values[static_cast<size_t>(std::ceil(q * 2000)) - 1];
    EXPECT_GE(h.quantile(q), exact * (1 - 1e-12)) << q;
    EXPECT_LE(h.quantile(q), exact * 1.1) << q;
  }
  EXPECT_EQ(h.max(), values.back());
}

TEST(DurationHistogramTest, ValuesBeyondTheEndsCount) {
  DurationHistogram h;
  h.add(0);
  h.add(1e9);
  EXPECT_EQ(h.count(), 2);
  EXPECT_LE(h.quantile(0.5), 1e-6);
  EXPECT_GT(h.quantile(1.0), 3600);
  EXPECT_EQ(h.max(), 1e9);
}

}  // namespace
}  // namespace fovea
