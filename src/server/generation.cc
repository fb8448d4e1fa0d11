#include "server/generation.h"

#include <algorithm>

#include "profile/scopes.h"
#include "server/answer_formats.h"
#include "server/answer_ids.h"
#include "server/endpoint_steps.h"
#include "server/openai/block_writer.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::ApiKind;

std::unique_ptr<openai::AnswerWriter> openai_writer(const Core& core, ApiKind kind,
                                                    const openai::GenerationRequest& request) {
  const char* prefix = kind == ApiKind::chat ? "chatcmpl-" : "cmpl-";
  return openai::make_openai_writer(
      {kind, random_id(prefix), core.answer_name(request.model), unix_seconds()}, request,
      {[engine = core.engine](int32_t id) { return engine->token_bytes(id); }, request.return_tokens_as_ids});
}

std::string new_call_id(openai::ToolFormat format) {
  return format == openai::ToolFormat::mistral ? random_id("", 9)
                                               : random_id("call_");  // its templates want 9
}

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

int characters(std::string_view utf8) {
  return static_cast<int>(std::ranges::count_if(utf8, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Generation::Generation(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket, ApiKind kind,
                       openai::GenerationRequest request, std::vector<TokenizedPrompt> prompts,
                       const openai::AnswerSize& size, std::unique_ptr<openai::AnswerWriter> writer)
    : reply_(std::move(reply)),
      core_(reply_->core()),
      kind_(kind),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      size_(size),
      share_(std::make_shared<AnswerShare>(core_.answers)),
      ticket_(std::move(ticket)),
      progress_(prompts_.size()),
      unfinished_prompts_(static_cast<int>(prompts_.size())),
      writer_(writer ? std::move(writer) : openai_writer(core_, kind, request_)),
      choices_(prompts_.size() * n()),
      introduced_(choices_.size()),
      cached_tokens_(prompts_.size()),
      completion_tokens_(choices_.size()),
      unfinished_(static_cast<int>(choices_.size())) {
  for (size_t p = 0; p < prompts_.size(); ++p) {
    progress_[p].last_token.resize(n());
    progress_[p].unfinished = request_.sampling.n;
    progress_[p].record.n = request_.sampling.n;
    progress_[p].record.max_tokens = request_.sampling.max_tokens;
    progress_[p].record.prompt_tokens = static_cast<int>(prompts_[p].read().size());
    usage_.prompt_tokens += static_cast<int>(prompts_[p].read().size());
  }
  for (size_t i = 0; i < choices_.size(); ++i) {
    openai::Choice& choice = choices_[i];
    const TokenizedPrompt& prompt = prompts_[i / n()];
    choice.index = static_cast<int>(i);
    choice.wants_logprobs = request_.sampling.logprobs.has_value();
    if (request_.echo && kind_ == ApiKind::completion) {
      choice.text = prompt.text;
      choice.text_offset = characters(prompt.text);
      choice.echoed = choice.wants_logprobs;
    }
    if (request_.format) {
      parsers_.push_back(std::make_unique<openai::AnswerParser>(
          *request_.format, [format = request_.format->tools] { return new_call_id(format); }));
      counters_.push_back(openai::reasoning_parser(*request_.format));
    }
    if (request_.return_token_ids || request_.prompt_logprobs || choice.echoed)
      choice.prompt_ids = prompt.read();
  }
}

Generation::~Generation() {
  core_.remove(this);
}

void Generation::start(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket, ApiKind kind,
                       openai::GenerationRequest request, std::vector<TokenizedPrompt> prompts,
                       const openai::AnswerSize& size, std::unique_ptr<openai::AnswerWriter> writer) {
  const auto self =
      std::make_shared<Generation>(std::move(reply), std::move(ticket), kind, std::move(request),
                                   std::move(prompts), size, std::move(writer));
  self->core_.add(self);
  self->reply_->on_drop([weak = self->weak_from_this()] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  if (auto error = self->submit()) {
    self->cancel();
    if (self->core_.metrics) self->core_.metrics->refused(error->status);
    self->reply_->error(*error);
  }
  if (self->core_.aborted.load()) self->abort();
}

GenerateRequest Generation::engine_request(size_t prompt) const {
  GenerateRequest out;
  out.prompt_ids = prompts_[prompt].ids;
  out.encoder_ids = prompts_[prompt].encoder_ids;
  out.sampling = request_.sampling;
  out.priority = request_.priority;
  out.client = reply_->client();
  out.cache_salt = request_.cache_salt;
  out.lora = core_.lora_of(request_.model);
  out.on_start = [reply = reply_] { reply->set_started(); };
  out.prompt_logprobs = request_.prompt_logprobs;
  if (choices_[prompt * n()].echoed && !out.prompt_logprobs) out.prompt_logprobs = request_.sampling.logprobs;
  // The engine accepts max_tokens = 0 only with prompt_logprobs.
  if (request_.sampling.max_tokens == 0 && !out.prompt_logprobs) out.prompt_logprobs = 0;
  return out;
}

/// The engine's refusal, also of an adapter that has been unloaded since the request was checked.
ApiError Generation::refused(const Error& error) const {
  if (error.code == ErrorCode::not_found)
    if (auto unknown = check_model(core_, request_.model)) return *std::move(unknown);
  const auto& constraint = request_.sampling.constraint;
  return constraint ? constraint_error(*constraint, error_of(error)) : error_of(error);
}

std::optional<ApiError> Generation::submit() {
  if (!share_->grow(size_.prompts)) return answers_full();
  // Check all prompts before the first is submitted, so that none is computed for a request that fails.
  if (prompts_.size() > 1)
    for (size_t p = 0; p < prompts_.size(); ++p)
      if (const Status fits = core_.engine->check(engine_request(p)); !fits) return refused(fits.error());
  for (size_t p = 0; p < prompts_.size(); ++p) {
    auto id = core_.engine->submit(
        engine_request(p),
        [self = shared_from_this(), p](const RequestOutput& output) { self->on_output(p, output); });
    if (!id) return refused(id.error());
    const std::lock_guard lock(mutex_);
    ids_.push_back(*id);
    if (cancelled_) {
      core_.engine->cancel(*id);
      return std::nullopt;  // the client has disconnected
    }
  }
  {
    const std::lock_guard lock(mutex_);
    begun_ = posted_ = true;
  }
  post_delivery();
  return std::nullopt;
}

void Generation::on_output(size_t prompt, const RequestOutput& output) {
  count(prompt, output);
  try {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) return;
      mailbox_.push_back({prompt, output});
      // An answer that is not streamed is delivered only when an output finishes.
      const bool news = request_.stream || output.finish != FinishReason::none;
      if (!begun_ || posted_ || !news) return;
      posted_ = true;
    }
    post_delivery();
  } catch (const std::bad_alloc&) {
    // An output is lost: close the stream so that the client detects the truncation.
    reply_->abort_stream();
    cancel();
  }
}

void Generation::count(size_t prompt, const RequestOutput& output) {
  Progress& progress = progress_[prompt];
  RequestRecord& record = progress.record;
  if (!progress.computed) {
    progress.computed = true;
    ticket_->prompt_done(static_cast<int64_t>(prompts_[prompt].read().size()));
  }
  if (!output.token_ids.empty() && core_.metrics) {
    const auto now = Clock::now();
    auto& last = progress.last_token[static_cast<size_t>(output.index)];
    if (last)
      core_.metrics->next_token(seconds(now - *last));
    else
      core_.metrics->first_token(seconds(now - arrival_));
    last = now;
  }
  if (output.finish == FinishReason::none) return;
  ticket_->answer_done();
  record.generation_tokens += output.completion_tokens;
  record.cached_tokens = std::max(record.cached_tokens, output.cached_tokens);
  record.finish = output.finish;
  record.queue_seconds = output.queue_seconds;
  record.prefill_seconds = output.prefill_seconds;
  record.decode_seconds = output.decode_seconds;
  if (--progress.unfinished > 0) return;
  record.e2e_seconds = seconds(Clock::now() - arrival_);
  if (core_.metrics) core_.metrics->finished(record);
  if (--unfinished_prompts_ == 0) ticket_.reset();
}

void Generation::post_delivery() {
  reply_->exchange().post([self = shared_from_this()] { guarded(self->reply_, [&] { self->deliver(); }); });
}

bool Generation::open() {
  if (opened_) return true;
  opened_ = true;
  if (!request_.stream) return true;
  if (!reply_->start_stream(writer_->stream_type())) return false;
  streams_ = true;
  last_write_ = Clock::now();
  return true;
}

void Generation::deliver() {
  const profile::Range range("HTTP answer");
  std::vector<Arrived> arrived;
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    arrived.swap(mailbox_);
  }
  if (ended_) return;
  if (!open()) {
    ended_ = true;
    cancel();
    return;
  }
  std::string events;
  std::optional<ApiError> error;
  for (size_t i = 0; i < arrived.size() && !error; ++i)
    error = take(arrived[i], events);
  if (unfinished_ == 0 && !error && streams_) events += writer_->last(usage_);
  if (!events.empty()) {
    last_write_ = Clock::now();
    if (!reply_->write(std::move(events))) {
      ended_ = true;
      cancel();
      return;
    }
  }
  if (error)
    fail(*error);
  else if (unfinished_ == 0)
    close();
}

std::optional<ApiError> Generation::take(const Arrived& arrived, std::string& events) {
  const RequestOutput& output = arrived.output;
  if (output.finish == FinishReason::error) return error_of(output.error);
  if (output.finish == FinishReason::cancelled) return shutting_down();
  const size_t index = arrived.prompt * n() + static_cast<size_t>(output.index);
  usage_.completion_tokens += output.completion_tokens - completion_tokens_[index];
  completion_tokens_[index] = output.completion_tokens;
  usage_.cached_tokens += std::max(0, output.cached_tokens - cached_tokens_[arrived.prompt]);
  cached_tokens_[arrived.prompt] = std::max(cached_tokens_[arrived.prompt], output.cached_tokens);
  if (output.finish != FinishReason::none) {
    --unfinished_;
    usage_.prefill_seconds = output.prefill_seconds;
    usage_.decode_seconds = output.decode_seconds;
    if (core_.config.draft_metrics && choices_.size() == 1) {
      usage_.drafts = output.speculative;
      usage_.draft_positions = core_.config.draft_positions;
    }
  }
  openai::Choice& choice = choices_[index];
  if (streams_) {
    if (!introduced_[index]) {
      introduced_[index] = true;
      const bool shows_prompt = request_.return_token_ids && (kind_ == ApiKind::completion || index == 0);
      events += writer_->first(
          choice.index,
          shows_prompt ? std::span<const int32_t>(choice.prompt_ids) : std::span<const int32_t>(), usage_);
      if (!choice.text.empty()) events += writer_->echo(choice.index, choice.text);
    }
    if (parsers_.empty()) {
      events += writer_->delta(choice.index, nullptr, 0, output, usage_);
    } else {
      const openai::AnswerDelta parts = split(index, output);
      const openai::AnswerParser& parser = *parsers_[index];
      events += writer_->delta(choice.index, &parts, parser.in_call() ? 0 : parser.calls(), output, usage_);
    }
    return std::nullopt;
  }
  if (auto error = grow(output.token_ids.size())) return error;
  if (writer_->wants_blocks()) {
    openai::add_to_blocks(choice.blocks,
                          parsers_.empty() ? openai::plain_parts(output) : split(index, output),
                          request_.include_reasoning);
  } else if (parsers_.empty()) {
    choice.text += output.text;
  } else {
    openai::AnswerDelta parts = split(index, output);
    choice.text += parts.content;
    if (request_.include_reasoning) choice.reasoning += parts.reasoning;
    choice.ends_in_call = parsers_[index]->in_call();
    for (openai::CallDelta& call : parts.calls) {
      if (call.first)
        choice.calls.push_back(std::move(call));
      else
        choice.calls.back().arguments += call.arguments;
    }
  }
  choice.token_ids.insert(choice.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
  choice.logprobs.insert(choice.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
  choice.finish = output.finish;
  choice.stop_reason = output.stop_reason;
  choice.stop_token = output.stop_token;
  if (!output.prompt_logprobs.empty() && (request_.prompt_logprobs || choice.echoed))
    for (size_t i = arrived.prompt * n(); i < (arrived.prompt + 1) * n(); ++i)
      choices_[i].prompt_logprobs = output.prompt_logprobs;
  return std::nullopt;
}

openai::AnswerDelta Generation::split(size_t choice, const RequestOutput& output) {
  openai::AnswerParser& parser = *parsers_[choice];
  openai::AnswerDelta parts;
  parser.push(output.text, parts);
  count_reasoning(choice, output);
  if (output.finish != FinishReason::none) parser.finish(parts);
  return parts;
}

void Generation::count_reasoning(size_t choice, const RequestOutput& output) {
  auto& counter = counters_[choice];
  for (size_t i = 0; counter && i < output.token_ids.size(); ++i) {
    const bool before = counter->in_reasoning();
    openai::AnswerDelta unused;
    counter->push(core_.engine->token_bytes(output.token_ids[i]), unused);
    if (before || counter->in_reasoning()) ++usage_.reasoning_tokens;
    if (counter->past_reasoning()) counter.reset();
  }
}

std::optional<ApiError> Generation::grow(size_t tokens) {
  const bool fits = share_->grow(size_.per_token * static_cast<int64_t>(tokens));
  // Without max_tokens the answer's size could not be checked in advance.
  if (!request_.max_tokens_given && share_->bytes() > core_.config.max_answer_bytes)
    return answer_too_large(core_, share_->bytes(), size_.what + ", no max_tokens", "max_tokens");
  if (!fits) return answers_full();
  return std::nullopt;
}

void Generation::close() {
  ended_ = true;
  if (streams_)
    reply_->end();
  else
    reply_->respond({200, "application/json", writer_->whole(choices_, usage_), {}, share_});
}

void Generation::fail(const ApiError& error) {
  if (ended_) return;
  ended_ = true;
  if (streams_) {
    reply_->write(stream_error(reply_->style(), error));
    reply_->end();
  } else {
    reply_->error(error);
  }
  cancel();
}

void Generation::abort() {
  reply_->exchange().post([self = shared_from_this()] { self->fail(shutting_down()); });
}

void Generation::tick(Clock::time_point now) {
  const auto silent = [this, now] { return now - last_write_.load() >= core_.config.sse_ping; };
  if (!request_.stream || !silent()) return;
  reply_->exchange().post([self = shared_from_this(), now, silent] {
    if (!self->streams_ || self->ended_ || !silent()) return;
    self->last_write_ = now;
    if (!self->reply_->write(self->writer_->ping())) self->cancel();
  });
}

void Generation::cancel() {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    mailbox_.clear();
    ids = ids_;
  }
  for (const uint64_t id : ids)
    core_.engine->cancel(id);
}

}  // namespace fovea::server
