#pragma once
// What is wrong with sampling parameters, found before anything runs.
#include "fovea/engine.h"

namespace fovea {

/// What parameters are held against.
struct SamplingLimits {
  int vocab_size = 0;     ///< rows of the logits
  int sampled_vocab = 0;  ///< ids below can be drawn
  int max_logprobs = 20;  ///< -1 = no limit
};

/// One line for the caller that says what was given and what is allowed; ok when nothing is wrong.
Status validate_sampling(const SamplingParams& params, const SamplingLimits& limits);

/// The same for a number of log probabilities called `name`.
Status validate_logprobs(const char* name, const std::optional<int>& wanted, const SamplingLimits& limits);

}  // namespace fovea
