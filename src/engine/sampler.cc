#include "engine/sampler.h"

#include <limits>

#include "base/philox.h"

namespace fovea {

Result<int32_t> Sampler::sample(std::span<float> logits, const SamplingParams& params, uint64_t seed,
                                uint64_t position, LogitsProcessor* processor,
                                std::span<const int32_t> tokens, size_t prompt_len,
                                TokenConstraint* constraint) {
  LogitScan found = scan_logits(logits);
  if (!found.valid) return Error{ErrorCode::internal, kBadLogits};
  if (processor)
    if (const auto forced = processor->forced(tokens.size() - prompt_len)) return *forced;
  bool changes = processor && processor->active();
  const auto allowed = processor ? processor->allowed() : std::span<const int32_t>();
  mask_.resize(TokenConstraint::mask_words(logits.size()));
  const bool constrained = constraint && constraint->fill_mask(mask_);
  if (constrained) logits = masked(logits);
  if (changes) processor->apply(tokens, prompt_len, logits, edits_);
  changes = changes || constrained;
  const std::span<const float> row = allowed.empty() ? logits : gather(logits, allowed);
  if (changes || !allowed.empty()) found = scan_logits(row);
  size_t pick = 0;
  if (found.valid) {
    const DrawRule rule{params.temperature, params.top_k, params.top_p, params.min_p};
    pick = draw_.draw(row, found.max, rule, philox_uniform(seed, position));
  }
  LogitsProcessor::undo(logits, edits_);
  if (!found.valid) return invalid(kNothingLeft);
  return allowed.empty() ? static_cast<int32_t>(pick) : allowed[pick];
}

/// A copy of the row in which tokens that mask_ excludes are -inf.
std::span<float> Sampler::masked(std::span<const float> logits) {
  masked_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    masked_[i] = mask_[i / 32] >> (i % 32) & 1 ? logits[i] : -std::numeric_limits<float>::infinity();
  return masked_;
}

std::span<const float> Sampler::gather(std::span<const float> logits, std::span<const int32_t> ids) {
  gathered_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    gathered_[i] = logits[static_cast<size_t>(ids[i])];
  return gathered_;
}

}  // namespace fovea
