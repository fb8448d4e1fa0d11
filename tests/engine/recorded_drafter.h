#pragma once
// A drafter of any quality.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "speculative/drafter.h"

namespace fovea::test {

/// Continues texts that it knows, each token with a probability, and has other tokens in their places.
class RecordedDrafter final : public Drafter {
 public:
  RecordedDrafter(std::vector<std::vector<int32_t>> texts, double right, uint32_t seed)
      : texts_(std::move(texts)), right_(right), rng_(seed) {}

  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      const auto text = std::ranges::find_if(texts_, [&](const auto& t) {
        return t.size() > job.tokens.size() && std::equal(job.tokens.begin(), job.tokens.end(), t.begin());
      });
      const int count = right_ == 1 ? job.most : std::uniform_int_distribution<int>(0, job.most)(rng_);
      for (int i = 0; i < count; ++i) {
        const size_t at = job.tokens.size() + static_cast<size_t>(i);
        const bool known = text != texts_.end() && at < text->size();
        const auto other = static_cast<int32_t>(rng_() % 256);
        job.drafts.push_back(known && std::bernoulli_distribution(right_)(rng_) ? (*text)[at] : other);
      }
    }
  }

 private:
  std::vector<std::vector<int32_t>> texts_;
  double right_;
  std::mt19937 rng_;
};

}  // namespace fovea::test
