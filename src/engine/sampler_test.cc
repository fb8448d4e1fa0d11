#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "base/thread_pool.h"
#include "engine/token_constraint_test_support.h"
#include "ops/cpu_ops.h"

namespace fovea {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Runs the sampler and checks that it restores the logits.
std::optional<int32_t> pick(Sampler& sampler, std::vector<float> logits, const SamplingParams& params,
                            uint64_t seed, uint64_t position) {
  const std::vector<float> before = logits;
  const auto token = sampler.sample(logits, params, seed, position);
  EXPECT_EQ(std::memcmp(logits.data(), before.data(), logits.size() * sizeof(float)), 0);
  return token ? std::optional(*token) : std::nullopt;
}

SamplingParams params(float temperature, int top_k = 0, float top_p = 1, float min_p = 0) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.min_p = min_p;
  return p;
}

/// The distribution written down directly from the documented rules, in double, with full sorts.
std::vector<double> expected_distribution(const std::vector<float>& logits, const SamplingParams& p) {
  const size_t n = logits.size();
  const double max = *std::max_element(logits.begin(), logits.end());
  std::vector<double> w(n);
  for (size_t i = 0; i < n; ++i)
    w[i] = std::exp((static_cast<double>(logits[i]) - max) / static_cast<double>(p.temperature));
  for (double& x : w)
    if (x < static_cast<double>(p.min_p)) x = 0;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < n) {
    std::vector<double> sorted = w;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const double kth = sorted[static_cast<size_t>(p.top_k) - 1];
    for (double& x : w)
      if (x < kth) x = 0;
  }
  if (p.top_p < 1) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return w[a] > w[b]; });
    const double wanted = std::accumulate(w.begin(), w.end(), 0.0) * static_cast<double>(p.top_p);
    double before = 0;
    for (size_t i : order) {
      const double x = w[i];
      if (before >= wanted) w[i] = 0;
      before += x;
    }
  }
  const double total = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& x : w)
    x /= total;
  return w;
}

/// Upper 1e-6 point of chi-square with `df` degrees of freedom (Wilson and Hilferty's cube approximation, z =
/// 4.753): a correct sampler fails for one seed in a million; the seed is fixed.
double chi_square_bound(double df) {
  const double a = 2.0 / (9.0 * df);
  return df * std::pow(1.0 - a + 4.753 * std::sqrt(a), 3);
}

void expect_distribution(const std::vector<float>& logits, const SamplingParams& p) {
  constexpr int kDraws = 20000;
  const std::vector<double> expected = expected_distribution(logits, p);
  Sampler sampler;
  std::vector<int> count(logits.size(), 0);
  for (int i = 0; i < kDraws; ++i) {
    const auto token = pick(sampler, logits, p, 12345, static_cast<uint64_t>(i));
    ASSERT_TRUE(token.has_value());
    ++count[static_cast<size_t>(*token)];
  }
  // Cells with fewer than 5 expected draws are merged, as the chi-square test requires.
  double chi = 0, rest = 0;
  int cells = 0, rest_count = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double e = expected[i] * kDraws;
    if (expected[i] == 0) {
      EXPECT_EQ(count[i], 0) << "token " << i << " was filtered out";
    } else if (e < 5) {
      rest += e;
      rest_count += count[i];
    } else {
      chi += (count[i] - e) * (count[i] - e) / e;
      ++cells;
    }
  }
  if (rest > 0) {
    chi += (rest_count - rest) * (rest_count - rest) / std::max(rest, 1.0);
    ++cells;
  }
  if (cells > 1) {
    EXPECT_LT(chi, chi_square_bound(cells - 1)) << cells;
  }
}

std::vector<float> normal_logits(size_t n, uint32_t seed, float deviation) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(n);
  for (float& x : logits)
    x = normal(rng);
  return logits;
}

TEST(SamplerTest, GreedyIsTheTrueArgmaxLowestIdFirst) {
  Sampler s;
  EXPECT_EQ(pick(s, std::vector<float>{1, 3, 3, 2}, params(0), 1, 1), 1);
  EXPECT_EQ(pick(s, std::vector<float>{-kInf, -5, -kInf}, params(9e-6f), 1, 1), 1);
  // Filters do not affect greedy, and a tiny but valid temperature finds the maximum too.
  EXPECT_EQ(pick(s, std::vector<float>{1, 3, 2.9f}, params(0, 2, 0.1f, 0.5f), 1, 1), 1);
  EXPECT_EQ(pick(s, std::vector<float>{1, 3, 2.9f}, params(1e-4f), 1, 1), 1);
}

TEST(SamplerTest, RefusesLogitsThatAreNotNumbers) {
  Sampler s;
  for (float temperature : {0.0f, 1.0f}) {
    EXPECT_FALSE(pick(s, std::vector<float>{1, kNan, 2}, params(temperature), 1, 1));
    EXPECT_FALSE(pick(s, std::vector<float>{1, -kNan, 2}, params(temperature), 1, 1));
    EXPECT_FALSE(pick(s, std::vector<float>{1, kInf, 2}, params(temperature), 1, 1));
    EXPECT_FALSE(pick(s, std::vector<float>{-kInf, -kInf}, params(temperature), 1, 1));
    EXPECT_TRUE(pick(s, std::vector<float>{-kInf, -3e38f}, params(temperature), 1, 1));
  }
  EXPECT_TRUE(scan_logits(std::vector<float>{0, -kInf}).valid);
  EXPECT_FALSE(scan_logits(std::vector<float>{0, kNan}).valid);
}

TEST(SamplerTest, MaskedTokensAreNeverDrawn) {
  std::vector<float> logits(100, -kInf);
  logits[17] = -4;
  logits[60] = -4;
  expect_distribution(logits, params(1));
  expect_distribution(logits, params(1, 5, 0.9f));
}

TEST(SamplerDistribution, Temperatures) {
  const auto logits = normal_logits(50, 1, 2);
  for (float t : {0.3f, 1.0f, 3.0f, 1000.0f}) {
    SCOPED_TRACE(t);
    expect_distribution(logits, params(t));
  }
}

TEST(SamplerDistribution, Filters) {
  const auto logits = normal_logits(400, 2, 3);
  for (const SamplingParams& p :
       {params(1, 1), params(1, 7), params(1, 300), params(1, 1000), params(1, -1), params(1, 0, 0.5f),
        params(1, 0, 1e-6f), params(1.5f, 0, 0.95f), params(1, 0, 1, 0.05f), params(1, 0, 1, 1),
        params(0.8f, 40, 0.9f, 0.01f), params(2, 290, 0.99f, 0.0001f)}) {
    SCOPED_TRACE(testing::Message() << p.temperature << ' ' << p.top_k << ' ' << p.top_p << ' ' << p.min_p);
    expect_distribution(logits, p);
  }
}

TEST(SamplerDistribution, TiesAtTheKthValueAreAllKept) {
  expect_distribution({1, 2, 2, 2, 0}, params(1, 2));
  expect_distribution(std::vector<float>(300, 0.5f), params(1, 10));
}

TEST(SamplerDistribution, TopPKeepsTheLowerIdsOfATie) {
  expect_distribution(std::vector<float>(10, 0.5f), params(1, 0, 0.35f));  // ids 0 to 3
}

TEST(SamplerDistribution, LargeTopKTakesTheOtherSelection) {
  auto logits = normal_logits(3000, 4, 4);
  expect_distribution(logits, params(1, 1500));
  // 257 is the first k that selects by partition. Compared with 256 it adds one token; the other draws are
  // the same.
  const auto with = [&](int k) {
    Sampler s;
    std::map<int32_t, int> seen;
    for (uint64_t i = 0; i < 5000; ++i)
      ++seen[*pick(s, logits, params(5, k), 9, i)];
    return seen;
  };
  const auto a = with(256), b = with(257);
  EXPECT_LE(a.size(), 256u);
  EXPECT_LE(b.size(), 257u);
}

TEST(SamplerTest, ADrawIsAPureFunctionOfSeedAndPosition) {
  const auto logits = normal_logits(1000, 3, 1);
  Sampler one, other;
  std::vector<int32_t> first;
  for (uint64_t i = 0; i < 200; ++i)
    first.push_back(*pick(one, logits, params(1), 77, i));
  for (uint64_t i = 200; i-- > 0;) {  // another order, mixed with other requests
    pick(other, normal_logits(50, 8, 1), params(1, 3), 5, i);
    EXPECT_EQ(*pick(other, logits, params(1), 77, i), first[i]);
  }
  int same = 0;
  for (uint64_t i = 0; i < 200; ++i)
    same += *pick(one, logits, params(1), 78, i) == first[i];
  EXPECT_LT(same, 20);
}

TEST(SamplerTest, RefusalsSayWhoseFaultItIs) {
  Sampler s;
  std::vector<float> logits = {1, kNan};
  EXPECT_EQ(s.sample(logits, params(1), 1, 1).error().code, ErrorCode::internal);
  logits = {1, 2, -kInf};
  SamplingParams p = params(1);
  p.allowed_token_ids = {2};
  LogitsProcessor only_masked(p, {}, {});
  const auto refused = s.sample(logits, p, 1, 1, &only_masked);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(refused.error().message.find("allowed_token_ids"), std::string::npos);
  EXPECT_EQ(logits[1], 2);
}

TEST(Sampler, DrawsWhatTheOperationDraws) {
  constexpr int64_t kRows = 60, kVocab = 300;
  std::mt19937 rng(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(kRows * kVocab), temperature, top_p, min_p;
  std::ranges::generate(logits, [&] { return normal(rng); });
  std::vector<int32_t> slot, top_k, tokens(kRows);
  std::vector<int64_t> seed, position;
  std::vector<SamplingParams> rules;
  for (int r = 0; r < kRows; ++r) {
    rules.push_back(params(r % 4 ? 0.5f + 0.1f * static_cast<float>(r % 7) : 0.0f, r % 3 ? 0 : 9,
                           r % 5 ? 1.0f : 0.7f, r % 6 ? 0.0f : 0.02f));
    slot.push_back(r);
    temperature.push_back(rules.back().temperature);
    top_p.push_back(rules.back().top_p);
    min_p.push_back(rules.back().min_p);
    top_k.push_back(rules.back().top_k);
    seed.push_back(r * 77);
    position.push_back(1000 - r);
  }
  ThreadPool pool(2);
  Stream stream(pool);
  const auto on_host = [](auto& values) { return host_tensor(std::span(values)); };
  const SampleRows rows{on_host(slot),  on_host(temperature), on_host(top_p),   on_host(min_p),
                        on_host(top_k), on_host(seed),        on_host(position)};
  ASSERT_TRUE(cpu_ops()
                  .sample(host_tensor(logits.data(), kRows, kVocab), kVocab, rows, on_host(tokens), stream)
                  .ok());
  Sampler sampler;
  for (size_t r = 0; r < kRows; ++r) {
    const auto row = std::span(logits).subspan(r * kVocab, kVocab);
    EXPECT_EQ(pick(sampler, {row.begin(), row.end()}, rules[r], static_cast<uint64_t>(seed[r]),
                   static_cast<uint64_t>(position[r])),
              tokens[r])
        << r;
  }
}

TEST(Sampler, AConstraintMasksTheRowAndTheParametersApplyToTheRest) {
  std::mt19937 rng(7);
  std::normal_distribution<float> normal(0, 3);
  Sampler sampler;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::vector<float> logits(70);
    for (float& x : logits)
      x = normal(rng);
    test::HashConstraint constraint(seed, 4);
    for (uint64_t i = 0; i < seed % 4; ++i) {  // some states allow every token
      int32_t token = 0;
      while (!constraint.advance(token))
        ++token;
    }
    std::vector<float> by_hand = logits;
    for (size_t i = 0; i < by_hand.size(); ++i)
      if (!constraint.allows(static_cast<int32_t>(i))) by_hand[i] = -kInf;
    SamplingParams p = params(seed % 2 == 0 ? 0.0f : 1.0f, seed % 3 == 0 ? 5 : 0);
    p.logit_bias = {{3, 2.5f}, {40, -1}};
    const std::vector<int32_t> tokens = {1, 2, 3};
    LogitsProcessor processor(p, {}, {}), other(p, {}, {});
    const std::vector<float> before = logits;
    const auto got = sampler.sample(logits, p, seed, 3, &processor, tokens, 2, &constraint);
    EXPECT_EQ(logits, before);
    const auto want = Sampler().sample(by_hand, p, seed, 3, &other, tokens, 2);
    ASSERT_TRUE(got && want);
    EXPECT_EQ(*got, *want);
    EXPECT_TRUE(constraint.allows(*got));
    EXPECT_EQ(constraint.size(), seed % 4);
  }
}

}  // namespace
}  // namespace fovea
