#include "engine/sampler.h"

#include "base/philox.h"

namespace fovea {
Result<int32_t> Sampler::sample(std::span<float> logits, const SamplingParams& params, uint64_t seed,
                                uint64_t position, LogitsProcessor* processor,
                                std::span<const int32_t> tokens, size_t prompt_len) {
  LogitScan found = scan_logits(logits);
  if (!found.valid) return Error{ErrorCode::internal, kBadLogits};
  if (processor)
    if (const auto forced = processor->forced(tokens.size() - prompt_len)) return *forced;
  const bool changes = processor && processor->active();
  const auto allowed = processor ? processor->allowed() : std::span<const int32_t>();
  if (changes) processor->apply(tokens, prompt_len, logits, edits_);
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

std::span<const float> Sampler::gather(std::span<const float> logits, std::span<const int32_t> ids) {
  gathered_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    gathered_[i] = logits[static_cast<size_t>(ids[i])];
  return gathered_;
}

}  // namespace fovea
