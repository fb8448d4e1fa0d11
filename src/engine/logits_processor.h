#pragma once
// Edits the logits of one request before sampling: bad words, end tokens below min_tokens, biases and
// penalties, in vLLM's order. Sampler applies allowed_token_ids.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/token_counts.h"
#include "fovea/engine.h"
#include "fovea/result_fwd.h"
#include "kernels/cuda/sample/edit_block.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace fovea {

/// Tokenizes bad words: each word without its leading white space, and also after a space where that gives a
/// different first token and the same number of tokens (to match both at the start of a text and inside it).
Result<std::vector<std::vector<int32_t>>> tokenize_bad_words(const std::vector<std::string>& words,
                                                             const Tokenizer& tokenizer);

class LogitsProcessor {
 public:
  /// A changed logit and its original value.
  struct Edit {
    int32_t token;
    float before;
  };

  LogitsProcessor() = default;
  /// `end_tokens`: suppressed by min_tokens, in addition to stop_token_ids. `forcing`: forced and suppressed
  /// tokens from the model's files, for answers of at most `max_tokens` tokens; null = none. It must outlive
  /// this.
  LogitsProcessor(const SamplingParams& params, std::vector<std::vector<int32_t>> bad_words,
                  std::span<const int32_t> end_tokens, const DecoderForcing* forcing = nullptr,
                  size_t max_tokens = 0);

  /// The token that must follow an answer of `answered` tokens and overrides everything else:
  /// forced_eos_token_id in the last position, as in transformers.
  std::optional<int32_t> forced(size_t answered) const {
    return answered + 1 == max_tokens_ && force_last_ ? forcing_->last : std::nullopt;
  }
  /// The only tokens that may be sampled, ascending and distinct; empty = all.
  std::span<const int32_t> allowed() const { return allowed_; }
  /// False when apply() never changes anything.
  bool active() const { return active_; }
  /// Whether a device's sampler cannot do all of it: rows are then sampled on the host.
  bool needs_host() const { return timestamps_.has_value(); }
  /// All of it, except timestamps, for a device's sampler; `bias` receives the memory of its biases. Valid as
  /// long as both.
  cuda::EditSpec edit_spec(std::vector<cuda::TokenBias>& bias) const;

  /// Changes `logits` [vocab] for the token that follows `tokens`, of which `prompt_len` are the prompt, and
  /// appends to `edits` what it overwrote, first to last. With c = a token's count in the answer:
  ///   last token of a bad word whose others end the answer: -inf
  ///   end tokens, while the answer is shorter than min_tokens: -inf
  ///   the model's suppress_tokens and, for the first token, its begin_suppress_tokens: -inf
  ///   x += bias
  ///   x > 0 ? x /= repetition_penalty : x *= repetition_penalty, for tokens of prompt and answer
  ///   x -= frequency_penalty * c, then x -= presence_penalty, for c > 0
  ///   tokens that TimestampRules excludes: -inf
  /// O(distinct tokens so far + bad words + biases; with timestamps, vocabulary); grows its memory with the
  /// distinct tokens only.
  void apply(std::span<const int32_t> tokens, size_t prompt_len, std::span<float> logits,
             std::vector<Edit>& edits);

  /// Restores what apply() overwrote.
  static void undo(std::span<float> logits, std::vector<Edit>& edits);

 private:
  void apply_bad_words(std::span<const int32_t> answer, std::span<float> logits,
                       std::vector<Edit>& edits) const;
  void apply_penalties(std::span<float> logits, std::vector<Edit>& edits) const;
  void apply_timestamps(std::span<const int32_t> answer, std::span<float> logits,
                        std::vector<Edit>& edits) const;

  bool active_ = false;
  bool penalises_ = false;
  size_t min_tokens_ = 0, max_tokens_ = 0;
  const DecoderForcing* forcing_ = nullptr;
  bool force_last_ = false;
  float repetition_ = 1, frequency_ = 0, presence_ = 0;
  std::vector<int32_t> allowed_, ends_;
  std::vector<LogitBias> bias_;
  std::vector<std::vector<int32_t>> bad_words_;
  std::optional<TimestampRules> timestamps_;
  TokenCounts counts_;
};

}  // namespace fovea
