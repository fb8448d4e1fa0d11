#pragma once
// Samples a token from logits: the request's logits processor, then greedy or temperature -> min_p -> top_k
// -> top_p -> draw, in vLLM's order. A token is a pure function of (logits, parameters, tokens so far, seed,
// position) and never depends on the batch.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/logits_processor.h"
#include "fovea/engine.h"

namespace fovea {

inline constexpr float kGreedyTemperature = 1e-5f;  ///< below it: argmax

/// True when a row of logits can be sampled: no NaN, no +inf, and not all -inf.
bool logits_valid(std::span<const float> logits);
/// Error message for an invalid row.
inline constexpr char kBadLogits[] =
    "the model's logits are not numbers (NaN or infinite); the weights or the dtype's range may be at fault: "
    "try --dtype float32";

class Sampler {
 public:
  /// `logits` [vocab]; -inf masks a token; modified during the call and restored before it returns.
  /// `position`: number of tokens before the sampled one. `tokens`: these tokens, the first `prompt_len` of
  /// them the prompt; only `processor` reads them. Errors: ErrorCode::internal when the logits are not valid,
  /// invalid_argument when the request's own masks leave no token.
  ///
  /// With z = (logits - max) / temperature, w = e^z: min_p keeps w >= min_p; top_k keeps what is at least the
  /// k-th largest (all of a tie); top_p sorts the rest in descending order (lower id first on a tie) and
  /// keeps each token that has less than top_p of the mass before it. The draw is the inverse of the
  /// distribution function in id order at one uniform number.
  Result<int32_t> sample(std::span<float> logits, const SamplingParams& params, uint64_t seed,
                         uint64_t position, LogitsProcessor* processor = nullptr,
                         std::span<const int32_t> tokens = {}, size_t prompt_len = 0);

 private:
  std::span<const float> gather(std::span<const float> logits, std::span<const int32_t> ids);
  /// The index drawn from a valid row with this largest value.
  size_t draw(std::span<const float> logits, float max, const SamplingParams& params, double uniform);
  void keep_top_k(size_t k);
  void keep_top_p(double top_p);
  double set_weights();

  // Candidates in ascending id order; top_p needs both z_ and weight_.
  std::vector<int32_t> id_;
  std::vector<float> z_, weight_, scratch_;
  std::vector<size_t> order_;
  std::vector<float> gathered_;  // logits of the allowed tokens, when not all are
  std::vector<LogitsProcessor::Edit> edits_;
};

}  // namespace fovea
