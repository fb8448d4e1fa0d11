#include "engine/request.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/philox.h"
#include "engine/validate_sampling.h"
#include "profile/scopes.h"

namespace fovea {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "?";
}

Status validate_request(const GenerateRequest& request, const RequestContext& context) {
  const auto prompt = static_cast<int64_t>(request.prompt_ids.size());
  if (prompt == 0) return invalid("prompt has no tokens; give at least one (a BOS token will do)");
  for (size_t i = 0; i < request.prompt_ids.size(); ++i)
    if (const int32_t id = request.prompt_ids[i]; id < 0 || id >= context.vocab_size)
      return invalid("prompt token " + std::to_string(i) + " is " + std::to_string(id) +
                     "; this model's ids are 0 to " + std::to_string(context.vocab_size - 1));
  const SamplingLimits limits{context.vocab_size, context.sampled_vocab, context.max_logprobs};
  FOVEA_RETURN_IF_ERROR(validate_sampling(request.sampling, limits));
  FOVEA_RETURN_IF_ERROR(validate_logprobs("prompt_logprobs", request.prompt_logprobs, limits));
  const bool scores = request.prompt_logprobs || request.last_logits;
  const bool generates = request.sampling.max_tokens.value_or(1) > 0;
  if (!generates && !scores)
    return invalid(
        "max_tokens is 0; it must be 1 or more unless prompt_logprobs or last_logits are requested");
  if (!request.sampling.stop.empty() && !context.tokenizer)
    return invalid("stop strings need a tokenizer, which this model does not have; use stop_token_ids");
  if (!request.sampling.bad_words.empty() && !context.tokenizer)
    return invalid(
        "bad_words need a tokenizer, which this model does not have; use logit_bias or allowed_token_ids");
  if (request.sampling.constraint && !context.constraints)
    return invalid("structured output needs a tokenizer, which this model does not have; leave it out");
  const std::string limit =
      "this model's maximum context length is " + std::to_string(context.max_seq_len) + " tokens";
  if (prompt > context.max_seq_len)
    return invalid("prompt has " + std::to_string(prompt) + " tokens; " + limit + "; shorten the prompt");
  if (context.max_prompt_len > 0 && prompt > context.max_prompt_len)
    return invalid("prompt has " + std::to_string(prompt) + " tokens; without the causal mask (" +
                   context.whole_prompts_from + ") a prompt is computed in one step, which holds " +
                   std::to_string(context.max_prompt_len) +
                   " tokens; shorten the prompt, or allow more with --max-num-batched-tokens");
  if (generates && prompt == context.max_seq_len)
    return invalid("prompt has " + std::to_string(prompt) + " tokens; " + limit +
                   ", which leaves none to generate; shorten the prompt");
  return {};
}

Result<std::vector<std::unique_ptr<Request>>> Request::create(GenerateRequest request, const OutputSink& sink,
                                                              const RequestContext& context) {
  FOVEA_RETURN_IF_ERROR(validate_request(request, context));
  std::vector<std::vector<int32_t>> bad_words;
  if (!request.sampling.bad_words.empty()) {
    FOVEA_TRY(sequences, tokenize_bad_words(request.sampling.bad_words, *context.tokenizer));
    bad_words = std::move(sequences);
  }
  std::optional<CompiledConstraint> constraint;
  if (request.sampling.constraint) {
    FOVEA_TRY(compiled, context.constraints->compile(*request.sampling.constraint));
    constraint = std::move(compiled);
  }
  std::vector<std::unique_ptr<Request>> answers;
  for (int index = 0; index < request.sampling.n; ++index) {
    answers.emplace_back(new Request(request, index, bad_words, sink, context));
    if (constraint)
      answers.back()->set_constraint(context.constraints->begin(*constraint, *request.sampling.constraint));
    request.prompt_logprobs.reset();
    request.last_logits = false;
    request.on_start = nullptr;
  }
  return answers;
}

Request::Request(const GenerateRequest& request, int index,
                 const std::vector<std::vector<int32_t>>& bad_words, OutputSink sink,
                 const RequestContext& context)
    : context_(context),
      sampling_(request.sampling),
      sink_(std::move(sink)),
      on_start_(request.on_start),
      prompt_logprobs_wanted_(request.prompt_logprobs.value_or(0)),
      wants_last_logits_(request.last_logits),
      stops_(sampling_.stop, sampling_.include_stop_str_in_output) {
  sequence.tokens = request.prompt_ids;
  sequence.prompt_len = sequence.num_tokens();
  sequence.client = request.client;
  sequence.cache_salt = request.cache_salt;
  sequence.draft_client = request.client;
  if (!request.cache_salt.empty()) sequence.draft_client += '\0' + request.cache_salt;
  sequence.logits_from = request.prompt_logprobs ? 0 : sequence.prompt_len - 1;
  if (request.prompt_logprobs) prompt_logprobs_.resize(sequence.tokens.size() - 1);
  const int room = context.max_seq_len - sequence.prompt_len;
  int most = room, least = 0;
  if (context.forcing) {
    // max_length and min_length of the model's files include the prompt. The answer has at least one token.
    if (context.forcing->max_length) most = std::max(1, *context.forcing->max_length - sequence.prompt_len);
    least = context.forcing->min_length - sequence.prompt_len;
  }
  max_new_tokens_ = std::min(sampling_.max_tokens.value_or(most), room);
  sequence.max_tokens = sequence.prompt_len + max_new_tokens_;
  if (sampling_.min_tokens == 0) sampling_.min_tokens = std::clamp(least, 0, max_new_tokens_);
  processor_ = LogitsProcessor(sampling_, bad_words, context.eos_token_ids, context.forcing,
                               static_cast<size_t>(max_new_tokens_));
  if (context.tokenizer) text_.emplace(*context.tokenizer, sampling_.skip_special_tokens, sequence.tokens);
  output_.index = index;
  output_.prompt_tokens = sequence.prompt_len;
}

void Request::set_id(uint64_t id) {
  output_.id = id;
  sequence.id = id + static_cast<uint64_t>(index());
  seed_ = choice_seed(sampling_.seed ? *sampling_.seed : derive_seed(context_.seed, id), index());
}

void Request::set_prompt_logprobs(int position, TokenLogprobs logprobs) {
  prompt_logprobs_[static_cast<size_t>(position)] = std::move(logprobs);
}

void Request::set_last_logits(std::vector<float> logits) {
  last_logits_ = std::move(logits);
  wants_last_logits_ = false;
}

bool Request::ends_at(int32_t token) const {
  const auto has = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return (!sampling_.ignore_eos && has(context_.eos_token_ids)) || has(sampling_.stop_token_ids);
}

void Request::push_text(std::string_view text) {
  const bool may_stop = output_.completion_tokens > sampling_.min_tokens;
  if (finished() || !stops_.push(text, output_.text, may_stop)) return;
  output_.finish = FinishReason::stop;
  output_.stop_reason = stops_.matched();
}

void Request::flush_text() {
  if (!text_ || finished()) return;
  std::string rest;
  text_->finish(rest);
  push_text(rest);  // may complete a stop string, which then is the finish reason
  if (!finished()) stops_.finish(output_.text);
}

void Request::accept(int32_t token, std::optional<TokenLogprobs> logprobs) {
  FOVEA_CHECK(!finished());
  ++output_.completion_tokens;
  if (ends_at(token)) {
    flush_text();
    if (finished()) return;
    output_.finish = FinishReason::stop;
    output_.stop_token = token;
    output_.stop_reason = context_.tokenizer ? std::string(context_.tokenizer->id_to_token(token)) : "";
    if (output_.stop_reason.empty()) output_.stop_reason = std::to_string(token);
    return;
  }
  sequence.tokens.push_back(token);
  output_.token_ids.push_back(token);
  if (logprobs) output_.logprobs.push_back(*std::move(logprobs));
  if (text_) {
    const profile::Range range("detokenise");
    std::string text;
    text_->push(token, text);
    push_text(text);
  }
  if (finished()) return;
  if (constraint_ && !constraint_->advance(token))
    finish(FinishReason::stop);
  else if (output_.completion_tokens >= max_new_tokens_)
    finish(FinishReason::length);
}

void Request::finish(FinishReason reason, Error error) {
  FOVEA_CHECK(!finished());
  if (reason == FinishReason::length || reason == FinishReason::stop)
    flush_text();
  else
    stops_.finish(output_.text);  // ended from outside: flush_text() would emit a partial character
  if (finished()) return;
  output_.finish = reason;
  output_.error = std::move(error);
}

void Request::mark_started(Time now) {
  if (started_) return;
  started_ = now;
  if (on_start_) on_start_();
}

void Request::mark_prompt_complete(Time now) {
  if (!prompt_complete_) prompt_complete_ = now;
}

void Request::set_times(Time now) {
  const auto seconds = [](Time from, Time to) { return std::chrono::duration<double>(to - from).count(); };
  const Time started = started_.value_or(now), complete = prompt_complete_.value_or(now);
  output_.queue_seconds = seconds(submitted_, started);
  output_.prefill_seconds = seconds(started, complete);
  output_.decode_seconds = seconds(complete, now);
}

void Request::emit(Time now) {
  if (output_.token_ids.empty() && output_.text.empty() && !finished()) return;
  output_.cached_tokens = sequence.cached_tokens;
  if (finished()) {
    output_.prompt_logprobs = std::move(prompt_logprobs_);
    output_.last_logits = std::move(last_logits_);
    output_.speculative = std::move(speculative_);
  }
  set_times(now);
  if (sink_) sink_(output_);
  output_.text.clear();
  output_.token_ids.clear();
  output_.logprobs.clear();
}

}  // namespace fovea
