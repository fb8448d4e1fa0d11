#pragma once
// Logits to a token: greedy, or temperature -> min_p -> top_k -> top_p -> draw, in this order (vLLM's). A
// token is a pure function of (logits, parameters, seed, position): it never depends on the batch.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fovea/engine.h"

namespace fovea {

/// True when a row of logits can be sampled: no NaN, no +inf, and not all -inf.
bool logits_valid(std::span<const float> logits);

/// What is wrong with sampling parameters, as one line for the caller; ok when nothing is.
Status validate_sampling(const SamplingParams& params, int vocab_size);

class Sampler {
 public:
  /// `logits` [vocab]; -inf masks a token. `position`: tokens before the one drawn. Nothing is returned when
  /// the logits are not valid.
  ///
  /// With z = (logits - max) / temperature, w = e^z: min_p keeps w >= min_p; top_k keeps what is at least the
  /// k-th largest (all of a tie); top_p keeps, of the rest in descending order (lower id first on a tie),
  /// each token that has less than top_p of the mass before it. The draw is the inverse of the distribution
  /// function in id order at one uniform number.
  std::optional<int32_t> sample(std::span<const float> logits, const SamplingParams& params, uint64_t seed,
                                uint64_t position);

 private:
  void keep_top_k(size_t k);
  void keep_top_p(double top_p);
  double weigh();

  // Candidates in ascending id order; z_[i] becomes unimportant once weight_[i] is known, but top_p needs
  // both.
  std::vector<int32_t> id_;
  std::vector<float> z_, weight_, scratch_;
  std::vector<size_t> order_;
};

}  // namespace fovea
