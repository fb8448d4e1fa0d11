#include "ops/token_sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <numeric>

#include "base/sample_math.h"
#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

using sample_math::draw_target;

// Histogram of top_p over -z of positive weights: only the bucket where the mass crosses top_p is sorted.
constexpr int kBucketsPerUnit = 64;
constexpr size_t kBuckets = static_cast<size_t>(-sample_math::kLowestZ) * kBucketsPerUnit + 1;

// Up to this k, one pass with a heap of k is faster than nth_element over a copy.
constexpr size_t kMaxHeap = 256;

// Logits whose weights are computed at a time, and tested for candidates at a time.
constexpr size_t kBlock = 1024;
constexpr size_t kTested = 128;

}  // namespace

/// Compares floats as integers of the same order (NaNs at both ends), a reduction that the compiler
/// vectorises.
LogitScan scan_logits(std::span<const float> logits) {
  constexpr int32_t kPlusInf = 0x7f800000, kMinusInf = static_cast<int32_t>(0x807fffffu);
  int32_t high = std::numeric_limits<int32_t>::min(), low = std::numeric_limits<int32_t>::max();
  for (float x : logits) {
    const auto bits = std::bit_cast<int32_t>(x);
    const int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
    high = std::max(high, key);
    low = std::min(low, key);
  }
  const bool valid = !logits.empty() && high < kPlusInf && low >= kMinusInf && high > kMinusInf;
  return {valid, std::bit_cast<float>(high ^ ((high >> 31) & 0x7fffffff))};
}

size_t TokenSampler::draw(std::span<const float> logits, float max, const DrawRule& rule, double uniform) {
  if (rule.temperature < kGreedyTemperature)
    return static_cast<size_t>(argmax(logits.data(), static_cast<int64_t>(logits.size())));
  const WeightRule weights{max, 1.0f / rule.temperature, sample_math::least_weight(rule.min_p)};
  const auto bits = static_cast<uint64_t>(uniform * 0x1p53);
  const bool has_top_k = rule.top_k > 0 && static_cast<size_t>(rule.top_k) < logits.size();
  if (!has_top_k && rule.top_p >= 1) return draw_unfiltered(logits, weights, bits);
  float least = -std::numeric_limits<float>::infinity();
  if (has_top_k) least = kth_largest(logits, static_cast<size_t>(rule.top_k));
  if (rule.top_p < 1)
    collect_top_p(logits, weights, least, rule.top_p);
  else
    collect(logits, weights, least);
  uint64_t total = 0, sum = 0;
  for (const Candidate& c : candidates_)
    total += c.weight;
  const uint64_t target = draw_target(bits, total);
  size_t pick = 0;
  while ((sum += candidates_[pick].weight) <= target)
    ++pick;
  return static_cast<size_t>(candidates_[pick].id);
}

size_t TokenSampler::draw_unfiltered(std::span<const float> logits, const WeightRule& rule,
                                     uint64_t uniform) {
  // Sums of blocks first, so that weights need no memory; then the block in which the drawn token is.
  thread_local std::vector<uint64_t> masses;
  masses.clear();
  uint64_t total = 0;
  for (size_t i = 0; i < logits.size(); i += kBlock) {
    const size_t n = std::min(kBlock, logits.size() - i);
    masses.push_back(sum_weights(&logits[i], static_cast<int64_t>(n), rule));
    total += masses.back();
  }
  uint64_t target = draw_target(uniform, total);
  size_t block = 0;
  for (; masses[block] <= target; ++block)
    target -= masses[block];
  std::array<uint64_t, kBlock> weights;
  const size_t first = block * kBlock;
  fixed_weights(&logits[first], static_cast<int64_t>(std::min(kBlock, logits.size() - first)), rule,
                weights.data());
  size_t pick = 0;
  for (; weights[pick] <= target; ++pick)
    target -= weights[pick];
  return first + pick;
}

/// The k-th largest logit, 1 <= k <= logits.size().
float TokenSampler::kth_largest(std::span<const float> logits, size_t k) {
  if (k > kMaxHeap) {
    heap_.assign(logits.begin(), logits.end());
    const auto at = heap_.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(heap_.begin(), at, heap_.end(), std::greater<>());
    return *at;
  }
  heap_.assign(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(k));
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  for (size_t i = k; i < logits.size(); ++i) {
    if (logits[i] <= heap_.front()) continue;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.back() = logits[i];
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  return heap_.front();
}

/// Calls block(first, weights) for each kTested logits of which at least one is not below `least`.
template <class F>
void TokenSampler::for_blocks(std::span<const float> logits, const WeightRule& rule, float least,
                              const F& block) {
  std::array<uint64_t, kTested> weights;
  for (size_t i = 0; i < logits.size(); i += kTested) {
    const size_t n = std::min(kTested, logits.size() - i);
    if (count_from(&logits[i], static_cast<int64_t>(n), least) == 0) continue;
    fixed_weights(&logits[i], static_cast<int64_t>(n), rule, weights.data());
    block(i, std::span<const uint64_t>(weights).first(n));
  }
}

/// Sets candidates_: logits of at least `least` with a positive weight.
void TokenSampler::collect(std::span<const float> logits, const WeightRule& rule, float least) {
  size_t kept = 0;
  for_blocks(logits, rule, least, [&](size_t first, std::span<const uint64_t> weights) {
    if (candidates_.size() < kept + weights.size()) candidates_.resize(2 * (kept + weights.size()));
    for (size_t j = 0; j < weights.size();
         ++j) {  // branchless: a flat row keeps most tokens, a sharp one few
      const float logit = logits[first + j];
      candidates_[kept] = {static_cast<int32_t>(first + j), logit, weights[j]};
      kept += (weights[j] > 0) & (logit >= least);
    }
  });
  candidates_.resize(kept);
}

/// Likewise, of those only the ones that top_p keeps.
void TokenSampler::collect_top_p(std::span<const float> logits, const WeightRule& rule, float least,
                                 float top_p) {
  const auto bucket = [&](float logit) {
    const float z = (rule.max - logit) * rule.scale * static_cast<float>(kBucketsPerUnit);
    return static_cast<size_t>(z < static_cast<float>(kBuckets - 1) ? z : static_cast<float>(kBuckets - 1));
  };
  std::array<uint64_t, kBuckets> mass{};
  for_blocks(logits, rule, least, [&](size_t first, std::span<const uint64_t> weights) {
    for (size_t j = 0; j < weights.size(); ++j)
      if (const float logit = logits[first + j]; logit >= least) mass[bucket(logit)] += weights[j];
  });
  const uint64_t wanted =
      sample_math::top_p_mass(top_p, std::accumulate(mass.begin(), mass.end(), uint64_t{0}));
  size_t crossing = 0;
  uint64_t before = 0;
  while (before + mass[crossing] < wanted)
    before += mass[crossing++];

  // Below every logit of the bucket: the rounding of its bound is far less than a bucket.
  const float bound =
      rule.max - static_cast<float>(crossing + 2) / (rule.scale * static_cast<float>(kBucketsPerUnit));
  collect(logits, rule, std::max(least, bound));
  order_.clear();
  for (size_t i = 0; i < candidates_.size(); ++i)
    if (bucket(candidates_[i].logit) == crossing) order_.push_back(i);
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    const Candidate &x = candidates_[a], &y = candidates_[b];
    return x.logit != y.logit ? x.logit > y.logit : a < b;
  });
  for (const size_t i : order_) {
    const bool keep = before < wanted;
    before += candidates_[i].weight;
    if (!keep) candidates_[i].weight = 0;
  }
  std::erase_if(candidates_, [&](const Candidate& c) { return c.weight == 0 || bucket(c.logit) > crossing; });
}

}  // namespace fovea
