#include "attention/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct State {
  std::vector<float> o;
  float lse;
};

State merge(const std::vector<State>& states) {
  std::vector<PartialState> parts;
  for (const State& s : states)
    parts.push_back({s.o.data(), &s.lse});
  State out{std::vector<float>(states[0].o.size()), 0};
  merge_states(parts, 1, static_cast<int>(out.o.size()), out.o.data(), &out.lse);
  return out;
}

TEST(Merge, GoldenTwoParts) {
  const State m = merge({{{1.731058579f}, 1.813261688f}, {{4.0f}, -0.25f}});
  EXPECT_NEAR(m.o[0], 1.986811851, 1e-6);
  EXPECT_NEAR(m.lse, 1.932855467, 1e-6);
}

TEST(Merge, IsAssociativeAndCommutativeWithinRounding) {
  const State a{{1, -2, 3}, 0.3f}, b{{-4, 5, 0.5f}, 2.1f}, c{{7, 0, -1}, -1.7f};
  const State flat = merge({a, b, c}), nested = merge({merge({c, b}), a});
  for (int d = 0; d < 3; ++d)
    EXPECT_NEAR(flat.o[d], nested.o[d], 1e-6);
  EXPECT_NEAR(flat.lse, nested.lse, 1e-6);
}

TEST(Merge, EmptyPartsLeakNothing) {
  for (const float empty : {-kInf, kInf, kNan}) {
    const State m = merge({{{kNan, kInf}, empty}, {{2, -3}, 1.5f}, {{kNan, kNan}, empty}});
    EXPECT_EQ(m.o, (std::vector<float>{2, -3})) << empty;
    EXPECT_EQ(m.lse, 1.5f);
    const State none = merge({{{kNan, 1}, empty}, {{2, kInf}, -kInf}});
    EXPECT_EQ(none.o, (std::vector<float>{0, 0}));
    EXPECT_EQ(none.lse, -kInf);
  }
}

TEST(Merge, AWeightThatUnderflowsIsSkipped) {
  const State m = merge({{{kNan}, -1000.0f}, {{3}, 50.0f}});
  EXPECT_EQ(m.o[0], 3.0f);
  EXPECT_EQ(m.lse, 50.0f);
}

TEST(Merge, LargeLsesDontOverflow) {
  const State m = merge({{{1}, 3000.0f}, {{3}, 3000.0f}});
  EXPECT_EQ(m.o[0], 2.0f);
  EXPECT_NEAR(m.lse, 3000.0 + std::log(2.0), 3e-4);
}

TEST(Merge, NoPartsGiveTheEmptyState) {
  float o[2] = {5, 5}, lse = 5;
  merge_states({}, 1, 2, o, &lse);
  EXPECT_EQ(o[0], 0.0f);
  EXPECT_EQ(o[1], 0.0f);
  EXPECT_EQ(lse, -kInf);
}

TEST(Merge, TheOutputMayBeAPartAndRowsAreIndependent) {
  constexpr int kRows = 3, kDv = 300;  // more than one block
  std::vector<float> a(kRows * kDv), b(kRows * kDv), lse_a = {0.5f, -kInf, 2}, lse_b = {1, 0.25f, -kInf};
  for (int i = 0; i < kRows * kDv; ++i) {
    a[i] = static_cast<float>(i % 13);
    b[i] = static_cast<float>(i % 7) - 3;
  }
  std::vector<float> o(kRows * kDv), lse(kRows);
  const PartialState parts[] = {{a.data(), lse_a.data()}, {b.data(), lse_b.data()}};
  merge_states(parts, kRows, kDv, o.data(), lse.data());
  const double wa = 1 / (1 + std::exp(0.5));
  for (int d = 0; d < kDv; ++d) {
    EXPECT_NEAR(o[d], wa * a[d] + (1 - wa) * b[d], 2e-6);
    EXPECT_EQ(o[kDv + d], b[kDv + d]);
    EXPECT_EQ(o[2 * kDv + d], a[2 * kDv + d]);
  }
  merge_states(parts, kRows, kDv, b.data(), lse_b.data());
  EXPECT_EQ(b, o);
  EXPECT_EQ(lse_b, lse);
}

}  // namespace
}  // namespace fovea
