#pragma once
// What one request changes in its logits before a token is drawn: bad words, end tokens that come too early,
// biases and penalties, in vLLM's order. Which tokens are allowed at all is Sampler's to look at.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/token_counts.h"
#include "fovea/engine.h"
#include "fovea/result.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace fovea {

/// The token sequences that bad words stand for: each word without the white space before it, and the same
/// after a space where that gives another first token and as many tokens (so that a word is found both at
/// the start of a text and inside it).
Result<std::vector<std::vector<int32_t>>> tokenize_bad_words(const std::vector<std::string>& words,
                                                             const Tokenizer& tokenizer);

class LogitsProcessor {
 public:
  /// A logit and the value that was there before.
  struct Edit {
    int32_t token;
    float before;
  };

  LogitsProcessor() = default;
  /// `end_tokens`: what min_tokens keeps from being drawn beside stop_token_ids. `forcing`: what the model's
  /// files say of its answers, of at most `max_tokens` tokens; null = nothing. It must outlive this.
  LogitsProcessor(const SamplingParams& params, std::vector<std::vector<int32_t>> bad_words,
                  std::span<const int32_t> end_tokens, const DecoderForcing* forcing = nullptr,
                  size_t max_tokens = 0);

  /// What follows an answer of `answered` tokens, whatever else is asked for: forced_eos_token_id in the last
  /// place, as in transformers.
  std::optional<int32_t> forced(size_t answered) const {
    return answered + 1 == max_tokens_ && force_last_ ? forcing_->last : std::nullopt;
  }
  /// The only tokens that may be drawn, ascending and distinct; empty = all.
  std::span<const int32_t> allowed() const { return allowed_; }
  /// False: apply() never changes anything.
  bool active() const { return active_; }

  /// Changes `logits` [vocab] for the token that follows `tokens`, of which `prompt_len` are the prompt, and
  /// appends to `edits` what it overwrote, first to last. With c = a token's count in the answer:
  ///   last token of a bad word whose others end the answer: -inf
  ///   end tokens, while the answer is shorter than min_tokens: -inf
  ///   the model's suppress_tokens and, for the first token, its begin_suppress_tokens: -inf
  ///   x += bias
  ///   x > 0 ? x /= repetition_penalty : x *= repetition_penalty, for tokens of prompt and answer
  ///   x -= frequency_penalty * c, then x -= presence_penalty, for c > 0
  /// O(distinct tokens so far + bad words + biases); grows its memory with the distinct tokens only.
  void apply(std::span<const int32_t> tokens, size_t prompt_len, std::span<float> logits,
             std::vector<Edit>& edits);

  /// Puts back what apply() overwrote.
  static void undo(std::span<float> logits, std::vector<Edit>& edits);

 private:
  void apply_bad_words(std::span<const int32_t> answer, std::span<float> logits,
                       std::vector<Edit>& edits) const;
  void apply_penalties(std::span<float> logits, std::vector<Edit>& edits) const;

  bool active_ = false;
  bool penalises_ = false;
  size_t min_tokens_ = 0, max_tokens_ = 0;
  const DecoderForcing* forcing_ = nullptr;
  bool force_last_ = false;
  float repetition_ = 1, frequency_ = 0, presence_ = 0;
  std::vector<int32_t> allowed_, ends_;
  std::vector<LogitBias> bias_;
  std::vector<std::vector<int32_t>> bad_words_;
  TokenCounts counts_;
};

}  // namespace fovea
