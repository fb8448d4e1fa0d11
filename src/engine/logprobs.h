#pragma once
// A row of logits as log probabilities: of one token, and of the most probable ones.
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/engine.h"

namespace fovea {

/// `logits` [vocab] without NaN or +inf; `top` = how many of the most probable tokens, at most vocab, -1 =
/// all. Probabilities are of the whole row, in double, rounded to float at the end; order and ranks are those
/// of the logits, lower ids first on a tie.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top);

}  // namespace fovea
