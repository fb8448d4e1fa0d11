#pragma once
// Validates sampling parameters before a request is queued.
#include "fovea/engine.h"

namespace fovea {

/// Limits that parameters are checked against.
struct SamplingLimits {
  int vocab_size = 0;     ///< rows of the logits
  int sampled_vocab = 0;  ///< ids below it can be sampled
  int max_logprobs = 20;  ///< -1 = no limit
};

/// Ok, or a one-line error that names the given value and the allowed ones.
Status validate_sampling(const SamplingParams& params, const SamplingLimits& limits);

/// The same for a number of log probabilities called `name`.
Status validate_logprobs(const char* name, const std::optional<int>& wanted, const SamplingLimits& limits);

}  // namespace fovea
