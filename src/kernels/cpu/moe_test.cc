#include "kernels/cpu/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/thread_pool.h"

namespace fovea {
namespace {

using Floats = std::vector<float>;
using Ids = std::vector<int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

Ids top(const Floats& x, int k) {
  Ids ids(static_cast<size_t>(k), -1);
  largest(x.data(), static_cast<int>(x.size()), k, ids.data());
  return ids;
}

TEST(Largest, IsSortedAndTakesTheLowerIndexOfEquals) {
  EXPECT_EQ(top({1, 3, 2}, 2), (Ids{1, 2}));
  EXPECT_EQ(top({5, 5, 5, 5}, 3), (Ids{0, 1, 2}));
  EXPECT_EQ(top({1, 2, 2, 1, 2}, 2), (Ids{1, 2}));
  EXPECT_EQ(top({0, 1, 0, 1, 0}, 4), (Ids{1, 3, 0, 2}));
  EXPECT_EQ(top({0.0f, -0.0f}, 1), (Ids{0}));
  EXPECT_EQ(top({-0.0f, 0.0f}, 1), (Ids{0}));
  EXPECT_EQ(top({7}, 1), (Ids{0}));
}

TEST(Largest, PutsNanFirstAndIdsStayDistinct) {
  EXPECT_EQ(top({1, kNan, kInf, kNan}, 3), (Ids{1, 3, 2}));
  EXPECT_EQ(top({kNan, kNan, kNan}, 2), (Ids{0, 1}));
  EXPECT_EQ(top({-kInf, -kInf, -kInf}, 2), (Ids{0, 1}));
}

TEST(Largest, IsAStableSort) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(random() % 130), k = 1 + static_cast<int>(random() % n);
    Floats x(static_cast<size_t>(n));
    for (float& v : x)
      v = static_cast<float>(random() % 9);  // many equals
    Ids expected(x.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::ranges::stable_sort(expected, [&](int32_t a, int32_t b) {
      return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
    });
    expected.resize(static_cast<size_t>(k));
    ASSERT_EQ(top(x, k), expected) << n << " " << k;
  }
}

TEST(Softmax, MatchesTheDefinition) {
  Floats x = {1, -3, 100, 99.5f, -200};
  const Floats in = x;
  double sum = 0;
  for (const float v : in)
    sum += std::exp(static_cast<double>(v) - 100);
  softmax(x.data(), 5);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_NEAR(x[i], std::exp(static_cast<double>(in[i]) - 100) / sum, 1e-7);
}

TEST(Softmax, IsNanThroughoutWhereItIsUndefined) {
  for (Floats x : {Floats{1, kNan, 2}, Floats{kNan, 1, 2}, Floats{1, kInf, 2}, Floats{-kInf, -kInf, -kInf}}) {
    softmax(x.data(), 3);
    for (const float p : x)
      EXPECT_TRUE(std::isnan(p));
  }
}

class MoeOpsTest : public testing::TestWithParam<Isa> {
 protected:
  MoeOpsTest() { set_isa(GetParam()); }
  ~MoeOpsTest() override { set_isa(detect_isa()); }
  ThreadPool pool_{3};
};
std::vector<Isa> isas() {
  std::vector<Isa> list;
  for (Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) list.push_back(isa);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Isas, MoeOpsTest, testing::ValuesIn(isas()),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

Floats random_floats(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  Floats values(count);
  for (float& v : values)
    v = normal(random);
  return values;
}

constexpr size_t kDims[] = {1, 7, 16, 33, 1000, 4097};  // the last ones are shared between threads
constexpr size_t kGap = 5;                              // row stride - dim
constexpr float kPoison = -77.0f;

TEST_P(MoeOpsTest, GatherTakesScaledRows) {
  const Ids rows = {9, 0, 3, 3, 7, 1, 2, 8};
  const Floats scales = random_floats(rows.size(), 2);
  for (const size_t dim : kDims) {
    const size_t stride = dim + kGap;
    const Floats x = random_floats(10 * stride, 1);
    for (const bool scaled : {false, true}) {
      Floats y(rows.size() * dim + 1, kPoison);
      gather_rows(x.data(), static_cast<int64_t>(stride), rows, scaled ? scales.data() : nullptr, y.data(),
                  static_cast<int64_t>(dim), pool_);
      for (size_t r = 0; r < rows.size(); ++r)
        for (size_t i = 0; i < dim; ++i)
          ASSERT_EQ(y[r * dim + i],
                    x[static_cast<size_t>(rows[r]) * stride + i] * (scaled ? scales[r] : 1.0f));
      EXPECT_EQ(y.back(), kPoison);
    }
  }
}

TEST_P(MoeOpsTest, ScatterAddsToItsRowsOnly) {
  const Ids rows = {9, 0, 3, 7, 1, 2, 8, 5};  // not 4 and 6
  const Floats scales = random_floats(rows.size(), 2);
  for (const size_t dim : kDims) {
    const size_t stride = dim + kGap;
    const Floats before = random_floats(10 * stride, 1), y = random_floats(rows.size() * dim, 3);
    for (const bool scaled : {false, true}) {
      Floats x = before, expected = before;
      for (size_t r = 0; r < rows.size(); ++r)
        for (size_t i = 0; i < dim; ++i) {
          float& at = expected[static_cast<size_t>(rows[r]) * stride + i];
          at = std::fma(scaled ? scales[r] : 1.0f, y[r * dim + i], at);
        }
      scatter_add_rows(x.data(), static_cast<int64_t>(stride), rows, scaled ? scales.data() : nullptr,
                       y.data(), static_cast<int64_t>(dim), pool_);
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(x[i], expected[i], 1e-6) << i;
      for (const size_t untouched : {4u, 6u})
        for (size_t i = 0; i < stride; ++i)
          ASSERT_EQ(x[untouched * stride + i], before[untouched * stride + i]);
    }
  }
}

double swiglu(double gate, double up, double limit) {
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit);
  return (up + 1) * gate / (1 + std::exp(-1.702 * gate));
}

TEST_P(MoeOpsTest, ClampedSwigluMatchesTheDefinition) {
  for (const size_t dim : kDims) {
    const size_t stride = 2 * dim + kGap, rows = 9;
    const Floats x = random_floats(rows * stride, 4, 6.0f);  // a quarter lies beyond the limit
    Floats out(rows * dim + 1, kPoison);
    clamped_swiglu(x.data(), x.data() + dim, static_cast<int64_t>(stride), 7.0f, out.data(),
                   static_cast<int64_t>(dim), rows, static_cast<int64_t>(dim), pool_);
    for (size_t r = 0; r < rows; ++r)
      for (size_t i = 0; i < dim; ++i) {
        const double expected = swiglu(x[r * stride + i], x[r * stride + dim + i], 7);
        ASSERT_NEAR(out[r * dim + i], expected, 1e-6 * std::max(1.0, std::fabs(expected))) << r << " " << i;
      }
    EXPECT_EQ(out.back(), kPoison);
  }
}

TEST_P(MoeOpsTest, ClampedSwigluAtItsEdges) {
  // The gate has no lower limit; the other three have one.
  const Floats gate = {7.5f, 100, 1e30f, -7.5f, -100, -1e30f, kInf, 2, 2, 2, 2, kNan, 1},
               up = {1, 1, 1, 1, 1, 1, 1, 7.5f, -7.5f, kInf, -kInf, 1, kNan};
  Floats out(gate.size(), kPoison);
  clamped_swiglu(gate.data(), up.data(), 0, 7.0f, out.data(), 0, 1, static_cast<int64_t>(gate.size()), pool_);
  for (size_t i = 0; i + 2 < gate.size(); ++i)
    EXPECT_NEAR(out[i], i == 5 ? 0.0 : swiglu(gate[i], up[i], 7), 2e-5) << i;
  EXPECT_TRUE(std::isnan(out[11]) && std::isnan(out[12]));
}

}  // namespace
}  // namespace fovea
