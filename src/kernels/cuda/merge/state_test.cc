#include "kernels/cuda/merge/state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fovea::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Part {
  float o, lse;
};

struct Merged {
  float o, lse;
};

Merged combine(const std::vector<Part>& parts) {
  MergeState state;
  float o = 0.0f;
  for (const Part& part : parts) {
    const CombineFactors factors = state.combine(part.lse);
    o = product(o, factors.keep);
    if (factors.weight != 0.0f) o = std::fmaf(part.o, factors.weight, o);
  }
  return {o / state.divisor(), state.merged_lse()};
}

/// With the largest exponent known before the first sum, as in merge_states_kernel.
Merged merge(const std::vector<Part>& parts) {
  MergeState state;
  for (const Part& part : parts)
    state.combine(part.lse);
  float o = 0.0f, weight = 0.0f;
  for (const Part& part : parts) {
    const PartWeight w = part_weight(part.lse);
    if (w.mantissa == 0.0f) continue;
    const float by = state.parts == 1 ? 1.0f : w.mantissa * power_of_two(w.exponent - state.exponent);
    if (by == 0.0f) continue;
    o = std::fmaf(part.o, by, o);
    weight += by;
  }
  state.weight = weight;
  return {o / state.divisor(), state.merged_lse()};
}

TEST(MergeState, CombiningOneByOneAndMergingGiveTheSameBits) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Part> parts(1 + random() % 20);
    for (Part& part : parts)
      part = {normal(random),
              random() % 5 == 0 ? -kInf : normal(random) * static_cast<float>(1 + random() % 30)};
    const Merged a = combine(parts), b = merge(parts);
    EXPECT_EQ(a.o, b.o);
    EXPECT_EQ(a.lse, b.lse);
    double most = -1e300, sum = 0, o = 0;
    for (const Part& part : parts)
      most = std::fmax(most, static_cast<double>(part.lse));
    for (const Part& part : parts) {
      const double w = std::exp(static_cast<double>(part.lse) - most);
      if (part.lse == -kInf) continue;
      sum += w;
      o += w * static_cast<double>(part.o);
    }
    if (sum == 0) {
      EXPECT_EQ(a.o, 0.0f);
      EXPECT_EQ(a.lse, -kInf);
      continue;
    }
    // An LSE of 100 has an ulp of 8e-6, which is an error of the weights.
    EXPECT_NEAR(static_cast<double>(a.o), o / sum, 3e-5);
    EXPECT_NEAR(static_cast<double>(a.lse), most + std::log(sum), 2e-5 + 3e-7 * std::fabs(most));
  }
}

TEST(MergeState, TheOnlyPartIsKeptAsItIs) {
  for (const float lse : {0.1234567f, -77.7f, 300.3f, 1e-30f}) {
    const Merged m = combine({{kNan, -kInf}, {0.333333f, lse}, {kInf, kNan}, {1, kInf}});
    EXPECT_EQ(m.o, 0.333333f);
    EXPECT_EQ(m.lse, lse);
  }
}

TEST(MergeState, PartsFarBelowLeakNothing) {
  const Merged m = combine({{3, 50.0f}, {kNan, -1000.0f}});
  EXPECT_NEAR(m.o, 3.0f, 1e-6f);
  EXPECT_NEAR(m.lse, 50.0f, 1e-5f);
  EXPECT_NEAR(merge({{kNan, -1000.0f}, {3, 50.0f}}).o, 3.0f, 1e-6f);
}

TEST(MergeState, SinksShrinkTheOutput) {
  const SinkResult s = apply_sink(1.5f, 0.5f);
  EXPECT_NEAR(s.factor, 1 / (1 + std::exp(-1.0)), 1e-6);
  EXPECT_NEAR(s.lse, std::log(std::exp(1.5) + std::exp(0.5)), 1e-6);
  EXPECT_EQ(apply_sink(1.5f, -kInf).factor, 1.0f);
  EXPECT_EQ(apply_sink(1.5f, -kInf).lse, 1.5f);
  EXPECT_EQ(apply_sink(1.5f, kInf).factor, 0.0f);
  EXPECT_EQ(apply_sink(-500.0f, 500.0f).factor, 0.0f);
  EXPECT_EQ(apply_sink(-500.0f, 500.0f).lse, 500.0f);
  EXPECT_EQ(apply_sink(-kInf, 0.25f).lse, 0.25f);  // no key: O is 0, and finite whatever the factor
  EXPECT_EQ(apply_sink(-kInf, -kInf).lse, -kInf);
  EXPECT_EQ(apply_sink(-kInf, kInf).factor * 0.0f, 0.0f);
}

}  // namespace
}  // namespace fovea::cuda
