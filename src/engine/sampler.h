#pragma once
// Samples a token from logits: the request's logits processor, then the draw. A token is a pure function of
// (logits, parameters, tokens so far, seed, position) and never depends on the batch.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/logits_processor.h"
#include "engine/token_constraint.h"
#include "fovea/engine.h"
#include "ops/token_sampler.h"

namespace fovea {

/// Error message for an invalid row.
inline constexpr char kBadLogits[] =
    "the model's logits are not numbers (NaN or infinite); the weights or the dtype's range may be at fault: "
    "try --dtype float32";

/// Error message for a row of which the request itself leaves nothing.
inline constexpr char kNothingLeft[] =
    "no token is left to draw after the request's masks; loosen allowed_token_ids, bad_words, min_tokens or "
    "the structured output";

class Sampler {
 public:
  /// `logits` [vocab]; -inf masks a token; modified during the call and restored before it returns.
  /// `position`: number of tokens before the sampled one. `tokens`: these tokens, the first `prompt_len` of
  /// them the prompt; only `processor` reads them. `constraint`, in the state after them, masks first.
  /// Errors: ErrorCode::internal when the logits are not valid, invalid_argument when the request's own masks
  /// leave no token. Draws with TokenSampler, from the uniform number of (seed, position).
  Result<int32_t> sample(std::span<float> logits, const SamplingParams& params, uint64_t seed,
                         uint64_t position, LogitsProcessor* processor = nullptr,
                         std::span<const int32_t> tokens = {}, size_t prompt_len = 0,
                         TokenConstraint* constraint = nullptr);

 private:
  std::span<float> masked(std::span<const float> logits);
  std::span<const float> gather(std::span<const float> logits, std::span<const int32_t> ids);

  TokenSampler draw_;
  std::vector<float> gathered_;  // logits of the allowed tokens, when not all are
  std::vector<LogitsProcessor::Edit> edits_;
  std::vector<uint32_t> mask_;  // of the constraint
  std::vector<float> masked_;   // a row under it
};

}  // namespace fovea
