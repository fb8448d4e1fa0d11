#include "engine/logprobs.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "kernels/cpu/ops.h"

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
  const float own = logits[token];
  int rank = 1;
  for (size_t i = 0; i < token; ++i)
    rank += logits[i] >= own;
  for (size_t i = token + 1; i < logits.size(); ++i)
    rank += logits[i] > own;
  return rank;
}

}  // namespace

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top) {
  FOVEA_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  const double normalizer = log_sum_exp(logits.data(), static_cast<int64_t>(logits.size()));
  const auto logprob = [&](int32_t id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - normalizer);
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
