#pragma once
// Log probabilities from a row of logits: of one token, and of the most probable ones.
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/engine.h"

namespace fovea {

/// `logits` [vocab], valid (scan_logits()); `top` = number of most probable tokens, at most vocab, -1 = all.
/// Probabilities are normalised over the whole row by an exact sum of integer weights (base/sample_math.h)
/// and rounded to float at the end. Order and ranks follow the logits; lower ids first on a tie.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top);

}  // namespace fovea
