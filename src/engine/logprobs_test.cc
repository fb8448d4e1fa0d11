#include "engine/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// From the definitions: probabilities in double, a full stable sort.
TokenLogprobs expected(const std::vector<float>& logits, int32_t token, size_t k) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float x : logits)
    sum += std::exp(static_cast<double>(x) - max);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  std::vector<TokenLogprob> all;
  for (size_t i = 0; i < order.size(); ++i)
    all.push_back(
        {order[i],
         static_cast<float>(static_cast<double>(logits[static_cast<size_t>(order[i])]) - max - std::log(sum)),
         static_cast<int>(i) + 1});
  TokenLogprobs out;
  out.token = *std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.token_id == token; });
  out.top.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(k));
  return out;
}

/// Ids and ranks exactly; values up to rounding from the order of summation.
void expect_equal(const TokenLogprobs& got, const TokenLogprobs& want) {
  const auto same = [](const TokenLogprob& a, const TokenLogprob& b) {
    EXPECT_EQ(a.token_id, b.token_id);
    EXPECT_EQ(a.rank, b.rank);
    if (std::isinf(b.logprob))
      EXPECT_EQ(a.logprob, b.logprob);
    else
      EXPECT_NEAR(a.logprob, b.logprob, 1e-5 * (1 + std::abs(b.logprob)));
  };
  same(got.token, want.token);
  ASSERT_EQ(got.top.size(), want.top.size());
  for (size_t i = 0; i < want.top.size(); ++i)
    same(got.top[i], want.top[i]);
}

TEST(LogprobsTest, AgreesWithAFullSortOnRandomRowsWithTies) {
  std::mt19937 rng(1);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const size_t vocab = 1 + rng() % 900;
    std::vector<float> logits(vocab);
    for (float& x : logits)  // few values: many ties
      x = rng() % 10 == 0 ? -kInf : static_cast<float>(static_cast<int>(rng() % 40) - 20) * 0.5f;
    logits[rng() % vocab] = 1;
    const auto token = static_cast<int32_t>(rng() % vocab);
    for (size_t k : {size_t{0}, size_t{1}, size_t{5}, size_t{256}, size_t{257}, vocab}) {
      k = std::min(k, vocab);
      expect_equal(token_logprobs(logits, token, static_cast<int>(k)), expected(logits, token, k));
    }
    expect_equal(token_logprobs(logits, token, -1), expected(logits, token, vocab));
  }
}

TEST(LogprobsTest, AllOfThemAreADistribution) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(2000);
  for (float& x : logits)
    x = normal(rng);
  double sum = 0;
  for (const TokenLogprob& entry : token_logprobs(logits, 7, -1).top)
    sum += std::exp(static_cast<double>(entry.logprob));
  EXPECT_NEAR(sum, 1, 1e-6);
}

}  // namespace
}  // namespace fovea
