#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "engine/philox.h"

#include "kernels/cpu/ops.h"
#include "text/utf8.h"

namespace fovea {
namespace {

constexpr float kGreedyTemperature = 1e-5f;

// e^-87 = 1.6e-38 is the end of normal floats: a million tokens below it weigh less than 2^-53 of the largest
// one together, which a 53-bit uniform number can't see.
constexpr float kLowestZ = -87.0f;

// Top-p's histogram over z in (kLowestZ, 0]: only the bucket in which the mass crosses top_p is sorted.
constexpr float kBucketsPerUnit = 8.0f;
constexpr size_t kBuckets = 87 * 8 + 1;

// Up to here one pass with a heap of k beats nth_element over a copy.
constexpr size_t kMaxHeap = 256;

constexpr size_t kMaxStops = 64, kMaxStopBytes = 1024, kMaxStopTokens = 1024;

struct Scan {
  bool valid;
  float max;
};

/// As integers whose order is the floats' (NaNs at both ends): a reduction that the compiler vectorises.
Scan scan(std::span<const float> logits) {
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

/// The k-th largest of `values`, 1 <= k <= values.size(); the order of `values` is lost.
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

std::string number(double x) {
  std::string text = std::to_string(x);
  return text;
}

}  // namespace

bool logits_valid(std::span<const float> logits) {
  return scan(logits).valid;
}

Status validate_sampling(const SamplingParams& p, int vocab_size) {
  if (!std::isfinite(p.temperature) || p.temperature < 0)
    return invalid("temperature is " + number(p.temperature) + "; it must be a finite number, 0 or more");
  if (!(p.top_p > 0 && p.top_p <= 1))
    return invalid("top_p is " + number(p.top_p) + "; it must be above 0 and at most 1 (1 = off)");
  if (!(p.min_p >= 0 && p.min_p <= 1))
    return invalid("min_p is " + number(p.min_p) + "; it must be 0 (off) to 1");
  if (p.top_k < -1)
    return invalid("top_k is " + std::to_string(p.top_k) + "; it must be 1 or more, or 0 or -1 for off");
  if (p.max_tokens && *p.max_tokens < 0)
    return invalid("max_tokens is " + std::to_string(*p.max_tokens) + "; it must be 1 or more");
  if (p.stop.size() > kMaxStops)
    return invalid("stop has " + std::to_string(p.stop.size()) + " strings; at most " +
                   std::to_string(kMaxStops) + " are allowed");
  for (const std::string& stop : p.stop) {
    if (stop.empty()) return invalid("stop has an empty string; remove it");
    if (stop.size() > kMaxStopBytes)
      return invalid("stop has a string of " + std::to_string(stop.size()) + " bytes; at most " +
                     std::to_string(kMaxStopBytes) + " are allowed");
    if (!text::is_valid_utf8(stop)) return invalid("stop has a string that is not valid UTF-8");
  }
  if (p.stop_token_ids.size() > kMaxStopTokens)
    return invalid("stop_token_ids has " + std::to_string(p.stop_token_ids.size()) + " ids; at most " +
                   std::to_string(kMaxStopTokens) + " are allowed");
  for (int32_t id : p.stop_token_ids)
    if (id < 0 || id >= vocab_size)
      return invalid("stop_token_ids has " + std::to_string(id) + "; this model's ids are 0 to " +
                     std::to_string(vocab_size - 1));
  return {};
}

std::optional<int32_t> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                       uint64_t seed, uint64_t position) {
  const Scan found = scan(logits);
  if (!found.valid) return std::nullopt;
  if (params.temperature < kGreedyTemperature)
    return static_cast<int32_t>(argmax(logits.data(), static_cast<int64_t>(logits.size())));

  const float scale = 1.0f / params.temperature;
  const float floor = params.min_p > 0 ? std::max(kLowestZ, std::log(params.min_p)) : kLowestZ;
  id_.resize(logits.size());
  z_.resize(logits.size());
  size_t kept = 0;
  for (size_t i = 0; i < logits.size();
       ++i) {  // no branch: most tokens of a flat row are kept, few of a sharp
    const float z = (logits[i] - found.max) * scale;
    id_[kept] = static_cast<int32_t>(i);
    z_[kept] = z;
    kept += z >= floor;
  }
  id_.resize(kept);
  z_.resize(kept);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < kept)
    keep_top_k(static_cast<size_t>(params.top_k));
  double total = weigh();
  if (params.top_p < 1) {
    keep_top_p(static_cast<double>(params.top_p) * total);
    total = std::accumulate(weight_.begin(), weight_.end(), 0.0);
  }
  const double target = philox_uniform(seed, position) * total;
  double sum = 0;
  size_t pick = 0;
  while (pick + 1 < weight_.size() && (sum += static_cast<double>(weight_[pick])) <= target)
    ++pick;
  return id_[pick];
}

double Sampler::weigh() {
  weight_.resize(z_.size());
  double total = 0;
  for (size_t i = 0; i < z_.size(); ++i) {
    weight_[i] = std::exp(z_[i]);
    total += static_cast<double>(weight_[i]);
  }
  return total;
}

void Sampler::keep_top_k(size_t k) {
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

void Sampler::keep_top_p(double mass_wanted) {
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
