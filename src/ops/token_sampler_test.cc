#include "ops/token_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/cpu_features.h"
#include "base/philox.h"
#include "base/sample_math.h"

namespace fovea {
namespace {

using sample_math::fixed_weight;

/// From the definition: full sorts, sums in the order of the row.
size_t expected(const std::vector<float>& x, const DrawRule& rule, uint64_t uniform) {
  const float max = *std::max_element(x.begin(), x.end());
  if (rule.temperature < kGreedyTemperature)
    return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  std::vector<uint64_t> w(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    w[i] = fixed_weight(x[i], max, 1.0f / rule.temperature, sample_math::least_weight(rule.min_p));
  if (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < x.size()) {
    const float kth = x[order[static_cast<size_t>(rule.top_k) - 1]];
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] < kth) w[i] = 0;
  }
  if (rule.top_p < 1) {
    const uint64_t total = std::accumulate(w.begin(), w.end(), uint64_t{0});
    const uint64_t wanted = sample_math::top_p_mass(rule.top_p, total);
    uint64_t before = 0;
    for (const size_t i : order) {
      const uint64_t weight = w[i];
      if (before >= wanted) w[i] = 0;
      before += weight;
    }
  }
  const uint64_t target = sample_math::draw_target(uniform, std::accumulate(w.begin(), w.end(), uint64_t{0}));
  uint64_t sum = 0;
  size_t pick = 0;
  while ((sum += w[pick]) <= target)
    ++pick;
  return pick;
}

std::vector<float> random_row(std::mt19937& rng) {
  std::vector<float> x(1 + rng() % 3000);
  std::normal_distribution<float> normal(0, std::array{0.0f, 0.3f, 3.0f, 20.0f}[rng() % 4]);
  const bool ties = rng() % 2 == 0;
  for (float& v : x) {
    v = ties ? std::round(normal(rng) * 2) / 2 : normal(rng);
    if (rng() % 8 == 0) v = -std::numeric_limits<float>::infinity();
  }
  x[rng() % x.size()] = 2;
  return x;
}

TEST(TokenSampler, DrawsAsDefined) {
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512}) {
    if (!set_isa(isa)) continue;
    std::mt19937 rng(5);
    TokenSampler sampler;
    for (int round = 0; round < 1500; ++round) {
      const std::vector<float> x = random_row(rng);
      const DrawRule rule = {std::array{0.0f, 0.01f, 0.7f, 1.0f, 4.0f, 1e4f}[rng() % 6],
                             std::array{0, -1, 1, 3, 50, 256, 257, 5000}[rng() % 8],
                             std::array{1.0f, 1e-30f, 0.1f, 0.9f, 0.9999999f}[rng() % 5],
                             std::array{0.0f, 1e-10f, 0.05f, 1.0f}[rng() % 4]};
      const LogitScan scan = scan_logits(x);
      ASSERT_TRUE(scan.valid);
      for (uint64_t bits :
           {uint64_t{0}, (uint64_t{1} << 53) - 1, uint64_t{rng()} << 21, uint64_t{rng()} << 20})
        ASSERT_EQ(sampler.draw(x, scan.max, rule, static_cast<double>(bits) * 0x1p-53),
                  expected(x, rule, bits))
            << to_string(isa) << " " << round;
    }
  }
  set_isa(detect_isa());
}

}  // namespace
}  // namespace fovea
