#include "ops/token_sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

// e^-87 = 1.6e-38 is near the smallest normal float. A million tokens below it together weigh less than 2^-53
// of the largest one, below the resolution of a 53-bit uniform number.
constexpr float kLowestZ = -87.0f;

// Histogram of top_p over z in (kLowestZ, 0]: only the bucket where the mass crosses top_p is sorted.
constexpr float kBucketsPerUnit = 8.0f;
constexpr size_t kBuckets = 87 * 8 + 1;

// Up to this k, one pass with a heap of k is faster than nth_element over a copy.
constexpr size_t kMaxHeap = 256;

/// The k-th largest of `values`, 1 <= k <= values.size(); `values` is reordered.
float kth_largest(std::vector<float>& values, size_t k, std::vector<float>& heap) {
  if (k > kMaxHeap) {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(values.begin(), at, values.end(), std::greater<>());
    return *at;
  }
  heap.assign(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(k));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  for (size_t i = k; i < values.size(); ++i) {
    if (values[i] <= heap.front()) continue;
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.back() = values[i];
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  return heap.front();
}

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
  const float scale = 1.0f / rule.temperature;
  const float floor = rule.min_p > 0 ? std::max(kLowestZ, std::log(rule.min_p)) : kLowestZ;
  id_.resize(logits.size());
  z_.resize(logits.size());
  size_t kept = 0;
  for (size_t i = 0; i < logits.size(); ++i) {  // branchless: a flat row keeps most tokens, a sharp one few
    const float z = (logits[i] - max) * scale;
    id_[kept] = static_cast<int32_t>(i);
    z_[kept] = z;
    kept += z >= floor;
  }
  id_.resize(kept);
  z_.resize(kept);
  if (rule.top_k > 0 && static_cast<size_t>(rule.top_k) < kept) keep_top_k(static_cast<size_t>(rule.top_k));
  double total = set_weights();
  if (rule.top_p < 1) {
    keep_top_p(static_cast<double>(rule.top_p) * total);
    total = std::accumulate(weight_.begin(), weight_.end(), 0.0);
  }
  const double target = uniform * total;
  double sum = 0;
  size_t pick = 0;
  while (pick + 1 < weight_.size() && (sum += static_cast<double>(weight_[pick])) <= target)
    ++pick;
  return static_cast<size_t>(id_[pick]);
}

double TokenSampler::set_weights() {
  weight_.resize(z_.size());
  double total = 0;
  for (size_t i = 0; i < z_.size(); ++i) {
    weight_[i] = std::exp(z_[i]);
    total += static_cast<double>(weight_[i]);
  }
  return total;
}

void TokenSampler::keep_top_k(size_t k) {
  weight_ = z_;  // not in use yet
  const float kth = kth_largest(weight_, k, scratch_);
  size_t kept = 0;
  for (size_t i = 0; i < z_.size(); ++i) {
    id_[kept] = id_[i];
    z_[kept] = z_[i];
    kept += z_[i] >= kth;
  }
  id_.resize(kept);
  z_.resize(kept);
}

void TokenSampler::keep_top_p(double mass_wanted) {
  auto bucket = [](float z) { return static_cast<size_t>(-z * kBucketsPerUnit); };
  std::array<double, kBuckets> mass{};
  for (size_t i = 0; i < z_.size(); ++i)
    mass[bucket(z_[i])] += static_cast<double>(weight_[i]);
  size_t crossing = 0;
  double before = 0;
  while (crossing + 1 < kBuckets && before + mass[crossing] < mass_wanted)
    before += mass[crossing++];

  order_.clear();
  for (size_t i = 0; i < z_.size(); ++i)
    if (bucket(z_[i]) == crossing) order_.push_back(i);
  std::sort(order_.begin(), order_.end(),
            [&](size_t a, size_t b) { return z_[a] != z_[b] ? z_[a] > z_[b] : a < b; });
  for (size_t i : order_) {
    const bool keep = before < mass_wanted;
    before += static_cast<double>(weight_[i]);
    if (!keep) weight_[i] = 0;
  }
  size_t kept = 0;
  for (size_t i = 0; i < z_.size(); ++i) {
    id_[kept] = id_[i];
    weight_[kept] = weight_[i];
    kept += weight_[i] > 0 && bucket(z_[i]) <= crossing;
  }
  id_.resize(kept);
  weight_.resize(kept);
}

}  // namespace fovea
