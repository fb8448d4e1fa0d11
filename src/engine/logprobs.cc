#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/sample_math.h"
#include "kernels/cpu/sample_weights.h"
#include "ops/token_sampler.h"

namespace fovea {
namespace {

// Up to this k, one pass with a heap of k is faster than a partial sort of all ids.
constexpr size_t kMaxHeap = 256;

/// Ids of the k largest logits, best first.
std::vector<int32_t> best_ids(std::span<const float> logits, size_t k) {
  const auto better = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::vector<int32_t> ids(k > kMaxHeap ? logits.size() : k);
  std::iota(ids.begin(), ids.end(), 0);
  if (k > kMaxHeap) {
    std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(k), ids.end(), better);
    ids.resize(k);
    return ids;
  }
  if (k == 0) return ids;
  std::make_heap(ids.begin(), ids.end(), better);  // min-heap: the worst in front
  for (size_t i = k; i < logits.size(); ++i) {
    if (logits[i] <= logits[static_cast<size_t>(ids.front())]) continue;  // on a tie the lower id stays
    std::pop_heap(ids.begin(), ids.end(), better);
    ids.back() = static_cast<int32_t>(i);
    std::push_heap(ids.begin(), ids.end(), better);
  }
  std::sort_heap(ids.begin(), ids.end(), better);
  return ids;
}

int rank_of(std::span<const float> logits, size_t token) {
  const float own = logits[token], above = std::nextafter(own, std::numeric_limits<float>::infinity());
  const auto after = logits.subspan(token + 1);
  return 1 + static_cast<int>(count_from(logits.data(), static_cast<int64_t>(token), own) +
                              count_from(after.data(), static_cast<int64_t>(after.size()), above));
}

}  // namespace

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top) {
  FOVEA_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  const float max = scan_logits(logits).max;
  const double log_sum =
      sample_math::log_weight_sum(sum_weights(logits.data(), static_cast<int64_t>(logits.size()), {max}));
  const auto logprob = [&](int32_t id) {
    return sample_math::log_probability(logits[static_cast<size_t>(id)], max, log_sum);
  };
  TokenLogprobs out;
  out.token = {token, logprob(token), rank_of(logits, static_cast<size_t>(token))};
  const size_t k = top < 0 ? logits.size() : std::min(static_cast<size_t>(top), logits.size());
  int rank = 0;
  for (const int32_t id : best_ids(logits, k))
    out.top.push_back({id, logprob(id), ++rank});
  return out;
}

}  // namespace fovea
