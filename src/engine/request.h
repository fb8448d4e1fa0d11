#pragma once
// One request on the engine's thread: what it asked, what it has, and the rules that end it.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sequence.h"
#include "engine/stop_matcher.h"
#include "fovea/engine.h"
#include "text/tokenizer.h"

namespace fovea {

/// What is the same for all requests of an engine.
struct RequestContext {
  const Tokenizer* tokenizer = nullptr;  ///< null: ids only, no text
  std::vector<int32_t> eos_token_ids;
  int vocab_size = 0;     ///< rows of the logits
  int sampled_vocab = 0;  ///< ids below are the tokenizer's; rows from here on pad the vocabulary
  int max_seq_len = 0;
  uint64_t seed = 0;
};

/// Why `request` can never run, as one line for the caller; ok when it can.
Status validate_request(const GenerateRequest& request, const RequestContext& context);

class Request {
 public:
  /// `request` has passed validate_request().
  Request(uint64_t id, GenerateRequest request, OutputSink sink, const RequestContext& context);

  Sequence sequence;

  uint64_t id() const { return sequence.id; }
  const SamplingParams& sampling() const { return sampling_; }
  uint64_t seed() const { return seed_; }
  /// False = scoring only: nothing is generated after the prompt.
  bool generates() const { return max_new_tokens_ > 0; }
  bool finished() const { return output_.finish != FinishReason::none; }

  /// How many of a row's logits can be sampled: the tokenizer's ids.
  size_t sampled_vocab() const { return static_cast<size_t>(context_.sampled_vocab); }

  /// Log p of the prompt token after `position` given the tokens up to it.
  void set_prompt_logprob(int position, float logprob);
  bool wants_last_logits() const { return wants_last_logits_; }
  void set_last_logits(std::span<const float> logits);

  /// One sampled token: appends it to the sequence or ends the request.
  void accept(int32_t token);
  /// Ends it for a reason that is not a token's. Text held back is released.
  void finish(FinishReason reason, Error error = {});

  /// Hands what is new to the sink; nothing when nothing is.
  void emit();

 private:
  void push_text(std::string_view text);
  void flush_text();
  bool ends_at(int32_t token) const;

  const RequestContext& context_;
  SamplingParams sampling_;
  OutputSink sink_;
  uint64_t seed_;
  int max_new_tokens_;
  bool wants_last_logits_;
  std::optional<Tokenizer::Stream> text_;
  StopMatcher stops_;
  std::vector<float> prompt_logprobs_, last_logits_;
  RequestOutput output_;  // since the last emit()
};

}  // namespace fovea
