#include "kernels/cpu/sample_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "base/cpu_features.h"
#include "base/sample_math.h"

namespace fovea {
namespace {

class SampleWeights : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!set_isa(GetParam())) GTEST_SKIP();
  }
  void TearDown() override { set_isa(detect_isa()); }
};

TEST_P(SampleWeights, HaveTheBitsOfTheScalarCode) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 8);
  for (const int64_t n : {0, 1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 100, 1000, 1031}) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x)
      v = rng() % 20 == 0 ? -std::numeric_limits<float>::infinity() : normal(rng);
    const float max = n > 0 ? *std::max_element(x.begin(), x.end()) : 0;
    for (const WeightRule& rule : {WeightRule{max}, WeightRule{max, 1e5f}, WeightRule{max, 0.03f},
                                   WeightRule{max, 1.7f, 0.01f * sample_math::kWeightOne}}) {
      std::vector<uint64_t> weights(x.size() + 1, 77);
      fixed_weights(x.data(), n, rule, weights.data());
      uint64_t sum = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(weights[i], sample_math::fixed_weight(x[i], rule.max, rule.scale, rule.least)) << x[i];
        sum += weights[i];
      }
      EXPECT_EQ(weights.back(), 77u);
      EXPECT_EQ(sum_weights(x.data(), n, rule), sum) << n;
    }
    for (const float least : {-std::numeric_limits<float>::infinity(), 0.0f, max, max + 1})
      EXPECT_EQ(count_from(x.data(), n, least),
                std::count_if(x.begin(), x.end(), [&](float v) { return v >= least; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, SampleWeights, testing::Values(Isa::generic, Isa::avx2, Isa::avx512),
                         [](const auto& isa) { return std::string(to_string(isa.param)); });

}  // namespace
}  // namespace fovea
