// How the CPU chooses experts among groups: by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cpu_ops.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

/// Logits whose sigmoids are `scores`.
std::vector<float> logits_of(const std::vector<double>& scores) {
  std::vector<float> out;
  for (const double s : scores)
    out.push_back(static_cast<float>(std::log(s / (1 - s))));
  return out;
}

Choice route(RouteRule rule, std::vector<float> logits, const std::vector<float>& bias = {}) {
  rule.num_experts = static_cast<int>(logits.size());
  if (!bias.empty()) rule.bias = host_tensor(std::span<const float>(bias));
  const auto k = static_cast<size_t>(rule.experts_per_token);
  Choice out{std::vector<int32_t>(k, -1), std::vector<float>(k, NAN)};
  ThreadPool pool(1);
  Stream stream(pool);
  const auto row = [](auto& values) {
    return Tensor::dense(values.data(), cpu_device(),
                         sizeof(values[0]) == 4 && std::is_integral_v<std::decay_t<decltype(values[0])>>
                             ? ElementType::i32
                             : ElementType::f32,
                         {1, static_cast<int64_t>(values.size())});
  };
  EXPECT_TRUE(cpu_ops().route(rule, row(logits), {row(out.experts), row(out.weights)}, stream).ok());
  return out;
}

RouteRule sigmoid_rule(int k, int groups, int top_groups) {
  return {.router = MoeRouter::sigmoid_then_top,
          .num_experts = 0,
          .experts_per_token = k,
          .renormalize = false,
          .bias = {},
          .scale = 1.0f,
          .groups = groups,
          .top_groups = top_groups,
          .group_best = 2};
}

// The best expert is in a group whose two best together are worth less.
TEST(CpuRoute, GroupsAreWorthTheirTwoBest) {
  const auto logits = logits_of({0.9, 0.1, 0.2, 0.6, 0.7, 0.3});
  EXPECT_THAT(route(sigmoid_rule(2, 2, 1), logits).experts, ElementsAre(4, 3));
  RouteRule by_best = sigmoid_rule(2, 2, 1);
  by_best.group_best = 1;
  EXPECT_THAT(route(by_best, logits).experts, ElementsAre(0, 2));
}

TEST(CpuRoute, TheBiasChoosesAndDoesNotWeigh) {
  const auto choice =
      route(sigmoid_rule(2, 1, 1), logits_of({0.5, 0.9, 0.3, 0.8}), {0.0f, -0.8f, 0.9f, 0.0f});
  EXPECT_THAT(choice.experts, ElementsAre(2, 3));
  EXPECT_THAT(choice.weights, ElementsAre(FloatNear(0.3f, 1e-6f), FloatNear(0.8f, 1e-6f)));
}

// With all choices negative, experts of other groups, at 0, would come first.
TEST(CpuRoute, OtherGroupsAreOutOfTheChoice) {
  const std::vector<float> bias(4, -2.0f);
  EXPECT_THAT(route(sigmoid_rule(2, 2, 1), logits_of({0.4, 0.3, 0.9, 0.8}), bias).experts, ElementsAre(2, 3));
}

TEST(CpuRoute, TheLowerIdIsFirstAmongEquals) {
  EXPECT_THAT(route(sigmoid_rule(3, 2, 1), std::vector<float>(8, 0.25f)).experts, ElementsAre(0, 1, 2));
  EXPECT_THAT(route(sigmoid_rule(2, 1, 1), {0.0f, 1.0f, 1.0f, 1.0f}).experts, ElementsAre(1, 2));
}

TEST(CpuRoute, WeightsAreDividedThenScaled) {
  RouteRule rule = sigmoid_rule(2, 1, 1);
  rule.renormalize = true;
  rule.scale = 2.5f;
  EXPECT_THAT(route(rule, logits_of({0.2, 0.6})).weights,
              ElementsAre(FloatNear(1.875f, 1e-5f), FloatNear(0.625f, 1e-5f)));
  // Scores that are all 0: nothing is divided by 0.
  EXPECT_THAT(route(rule, {-200.0f, -200.0f}).weights, ElementsAre(0.0f, 0.0f));
}

}  // namespace
}  // namespace fovea
