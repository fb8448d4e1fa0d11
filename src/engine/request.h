#pragma once
// One request on the engine thread: parameters, state, output, and the rules that finish it.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/constraint_compiler.h"
#include "engine/executor.h"
#include "engine/logits_processor.h"
#include "engine/sequence.h"
#include "engine/stop_matcher.h"
#include "fovea/engine.h"
#include "text/tokenizer.h"

namespace fovea {

/// Settings shared by all requests of an engine.
struct RequestContext {
  const Tokenizer* tokenizer = nullptr;  ///< null: ids only, no text
  std::vector<int32_t> eos_token_ids;
  int vocab_size = 0;     ///< rows of the logits
  int sampled_vocab = 0;  ///< ids below are the tokenizer's; rows from here on pad the vocabulary
  int max_seq_len = 0;
  /// Tokens of a prompt that must be computed in one step; 0 = it may be cut into chunks.
  int max_prompt_len = 0;
  std::string whole_prompts_from;           ///< the setting that requires this
  int max_logprobs = 20;                    ///< -1 = no limit
  const DecoderForcing* forcing = nullptr;  ///< forced and suppressed tokens of an encoder-decoder model
  uint64_t seed = 0;
  ConstraintCompiler* constraints = nullptr;  ///< null without a tokenizer
};

/// Ok, or a one-line error for the caller with the reason why `request` can never run.
Status validate_request(const GenerateRequest& request, const RequestContext& context);

/// One answer to a prompt; each has its own sequence.
class Request {
 public:
  /// The sampling.n answers to `request`, in order of their index; an error when it can never run. Only the
  /// first carries prompt_logprobs and last_logits, which are the same for all.
  static Result<std::vector<std::unique_ptr<Request>>> create(GenerateRequest request, const OutputSink& sink,
                                                              const RequestContext& context);

  Sequence sequence;

  /// Sets the ids: `id` is the request's, shared by all n answers; their sequences are id, id + 1, ... Call
  /// once, before anything below.
  void set_id(uint64_t id);

  uint64_t id() const { return sequence.id; }
  /// The request id, shared by all n answers.
  uint64_t group() const { return output_.id; }
  int index() const { return output_.index; }
  SequenceSampling sequence_sampling() {
    return {&sampling_, &processor_, seed_, sampled_vocab(), constraint_.get()};
  }
  /// Before the request is added to the engine; null = none. A token after which the constraint lets nothing
  /// follow ends the answer.
  void set_constraint(std::unique_ptr<TokenConstraint> constraint) { constraint_ = std::move(constraint); }
  /// False = scoring only, nothing is generated.
  bool generates() const { return max_new_tokens_ > 0; }
  bool finished() const { return output_.finish != FinishReason::none; }

  /// Number of top tokens reported with each prompt token's log probability.
  int prompt_logprobs() const { return prompt_logprobs_wanted_; }
  /// Log probabilities of the prompt token after `position`, given the tokens up to `position`.
  void set_prompt_logprobs(int position, TokenLogprobs logprobs);
  bool wants_last_logits() const { return wants_last_logits_; }
  void set_last_logits(std::vector<float> logits);

  /// Handles one sampled token: appends it to the sequence or finishes the request. `logprobs` when wanted.
  void accept(int32_t token, std::optional<TokenLogprobs> logprobs = {});
  /// Finishes it for a reason other than a sampled token. Held-back text is released.
  void finish(FinishReason reason, Error error = {});

  /// A step has verified drafts.
  void count_drafts(int verified, int accepted) { speculative_.add(verified, accepted); }

  using Time = std::chrono::steady_clock::time_point;
  /// Record the start of its first step and the end of its prompt; only the first call of each counts.
  void mark_started(Time now);
  void mark_prompt_complete(Time now);

  /// Sends new output to the sink, if there is any.
  void emit(Time now);

 private:
  Request(const GenerateRequest& request, int index, const std::vector<std::vector<int32_t>>& bad_words,
          OutputSink sink, const RequestContext& context);
  /// Number of leading logits that can be sampled: the tokenizer's ids.
  size_t sampled_vocab() const { return static_cast<size_t>(context_.sampled_vocab); }
  void set_times(Time now);
  void push_text(std::string_view text);
  void flush_text();
  bool ends_at(int32_t token) const;

  const RequestContext& context_;
  SamplingParams sampling_;
  OutputSink sink_;
  std::function<void()> on_start_;
  LogitsProcessor processor_;
  std::unique_ptr<TokenConstraint> constraint_;
  uint64_t seed_ = 0;
  int max_new_tokens_;
  int prompt_logprobs_wanted_;
  bool wants_last_logits_;
  std::optional<Tokenizer::Stream> text_;
  StopMatcher stops_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  std::vector<float> last_logits_;
  SpeculativeCounts speculative_;
  RequestOutput output_;  // since the last emit()
  Time submitted_ = std::chrono::steady_clock::now();
  std::optional<Time> started_, prompt_complete_;
};

}  // namespace fovea
