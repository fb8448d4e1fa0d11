#include "server/transcription.h"

#include <algorithm>
#include <cmath>

#include "profile/scopes.h"
#include "server/endpoint_steps.h"

namespace fovea::server {
namespace {

using openai::ApiError;

// Whisper's thresholds of silence: such a window has no text.
constexpr double kNoSpeech = 0.6, kLogprob = -1.0;
// An answer begins with a timestamp of at most one second.
constexpr double kMostInitialSeconds = 1.0;
constexpr std::string_view kBlank = " \t\r\n";

double to_seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Transcription::Transcription(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket,
                             TranscriptionPlan plan)
    : reply_(std::move(reply)),
      core_(reply_->core()),
      ticket_(std::move(ticket)),
      plan_(std::move(plan)),
      context_(plan_.prompt) {
  transcript_.translated = plan_.translate;
  transcript_.seconds = plan_.audio.seconds();
  transcript_.temperature = plan_.request.temperature;
  detecting_ = plan_.language.empty() && !model().tokens.languages.empty();
}

Transcription::~Transcription() {
  core_.remove(this);
  record(FinishReason::cancelled);
}

void Transcription::start(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket,
                          TranscriptionPlan plan) {
  const auto self = std::make_shared<Transcription>(std::move(reply), std::move(ticket), std::move(plan));
  self->core_.add(self);
  self->reply_->on_drop([weak = self->weak_from_this()] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  self->next_window();
  if (self->core_.aborted.load()) self->abort();
}

void Transcription::next_window() {
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
    id_.reset();
  }
  auto error = computed_for_ == seek_ ? std::nullopt : compute_features();
  if (!error) error = submit();
  if (error) reply_->exchange().post([self = shared_from_this(), error = *error] { self->fail(error); });
}

/// Computes the window's features.
std::optional<ApiError> Transcription::compute_features() {
  const profile::Range range("log-mel");
  const LogMelConfig& input = model().input;
  const int64_t all = std::max<int64_t>(plan_.samples() / input.hop_length, 1);
  frames_ = std::min(input.frames(), all - seek_);
  const int64_t first = seek_ * input.hop_length, left = plan_.samples() - first;
  auto samples = read_resampled(plan_.audio, plan_.resampler, first, std::min(left, input.window_samples()));
  if (!samples) return openai::bad_request(samples.error().message, "file");
  auto features = log_mel(input, *samples);
  if (!features) return error_of(features.error());
  features_ = *std::move(features);
  computed_for_ = seek_;
  return std::nullopt;
}

std::vector<int32_t> Transcription::decoder_prompt() const {
  const WhisperTokens& tokens = model().tokens;
  if (!tokens.start) return model().decoder_prompt;
  if (detecting_) return {*tokens.start};
  std::vector<int32_t> prompt;
  if (tokens.previous && !context_.empty()) {
    const size_t most = static_cast<size_t>(core_.max_seq_len()) / 2 - 1;
    prompt.push_back(*tokens.previous);
    prompt.insert(prompt.end(), context_.end() - static_cast<std::ptrdiff_t>(std::min(most, context_.size())),
                  context_.end());
  }
  prompt.push_back(*tokens.start);
  if (const auto language = tokens.languages.find(plan_.language); language != tokens.languages.end()) {
    prompt.push_back(language->second);
    prompt.push_back(plan_.translate ? *tokens.translate : *tokens.transcribe);
  }
  if (!plan_.times && tokens.no_times) prompt.push_back(*tokens.no_times);
  return prompt;
}

GenerateRequest Transcription::engine_request() const {
  const AudioInput& audio = model();
  GenerateRequest out;
  out.prompt_ids = decoder_prompt();
  out.encoder_features = features_;
  out.client = reply_->client();
  out.on_start = [reply = reply_] { reply->set_started(); };
  SamplingParams& sampling = out.sampling;
  sampling = core_.engine->default_sampling();
  sampling.n = 1;
  sampling.temperature = plan_.request.temperature;
  if (plan_.request.seed) sampling.seed = plan_.request.seed;
  if (detecting_) {
    sampling.temperature = 0;
    sampling.max_tokens = 1;
    sampling.allowed_token_ids.emplace();
    for (const auto& [code, id] : audio.tokens.languages)
      sampling.allowed_token_ids->push_back(id);
    return out;
  }
  // Half of the context, as in Whisper; what a longer prompt leaves.
  const int context = core_.max_seq_len();
  sampling.max_tokens = std::max(1, std::min(context / 2, context - static_cast<int>(out.prompt_ids.size())));
  if (!plan_.times) return out;
  const double step = audio.step_seconds();
  sampling.timestamps = {*audio.tokens.first_time, audio.tokens.text_end, *audio.tokens.no_times,
                         static_cast<int32_t>(std::lround(kMostInitialSeconds / step))};
  // The most probable token tells whether silence is more probable than not.
  sampling.logprobs = core_.config.max_logprobs == 0 ? 0 : 1;
  if (audio.tokens.no_speech && *sampling.logprobs > 0) out.prompt_logprobs = 1;
  return out;
}

std::optional<ApiError> Transcription::submit() {
  GenerateRequest request = engine_request();
  prompt_size_ = request.prompt_ids.size();
  answer_.clear();
  logprobs_.clear();
  prompt_logprobs_.clear();
  record_.prompt_tokens += static_cast<int>(prompt_size_);
  auto id = core_.engine->submit(
      std::move(request),
      [self = shared_from_this()](const RequestOutput& output) { self->on_output(output); });
  if (!id) return error_of(id.error());
  const std::lock_guard lock(mutex_);
  id_ = *id;
  if (cancelled_) core_.engine->cancel(*id);
  return std::nullopt;
}

void Transcription::on_output(const RequestOutput& output) {
  if (!output.token_ids.empty() && core_.metrics) {
    const auto now = Clock::now();
    if (last_token_)
      core_.metrics->next_token(to_seconds(now - *last_token_));
    else
      core_.metrics->first_token(to_seconds(now - arrival_));
    last_token_ = now;
  }
  try {
    {
      const std::lock_guard lock(mutex_);
      if (cancelled_) return;
      mailbox_.push_back(output);
      if (posted_) return;
      posted_ = true;
    }
    post_delivery();
  } catch (const std::bad_alloc&) {
    reply_->abort_stream();
    cancel();
  }
}

void Transcription::post_delivery() {
  reply_->exchange().post([self = shared_from_this()] { guarded(self->reply_, [&] { self->deliver(); }); });
}

void Transcription::deliver() {
  const profile::Range range("HTTP answer");
  std::vector<RequestOutput> arrived;
  {
    const std::lock_guard lock(mutex_);
    posted_ = false;
    arrived.swap(mailbox_);
  }
  if (ended_) return;
  if (!opened_) {
    opened_ = true;
    if (plan_.request.stream) {
      if (!reply_->start_stream("text/event-stream")) {
        ended_ = true;
        return cancel();
      }
      streams_ = true;
      last_write_ = Clock::now();
    }
  }
  for (const RequestOutput& output : arrived) {
    if (const auto error = take(output)) return fail(*error);
    if (output.finish != FinishReason::none) return end_window();
  }
}

std::optional<ApiError> Transcription::take(const RequestOutput& output) {
  if (output.finish == FinishReason::error) return error_of(output.error);
  if (output.finish == FinishReason::cancelled) return shutting_down();
  if (!computed_) {
    computed_ = true;
    ticket_->prompt_done(model().steps);
  }
  answer_.insert(answer_.end(), output.token_ids.begin(), output.token_ids.end());
  logprobs_.insert(logprobs_.end(), output.logprobs.begin(), output.logprobs.end());
  if (output.finish != FinishReason::none) {
    prompt_logprobs_ = output.prompt_logprobs;
    if (record_.generation_tokens == 0) record_.queue_seconds = output.queue_seconds;
    record_.generation_tokens += output.completion_tokens;
    record_.prefill_seconds += output.prefill_seconds;
    record_.decode_seconds += output.decode_seconds;
    record_.finish = output.finish;
  }
  if (detecting_ || plan_.times) return std::nullopt;
  return emit(output.text);
}

/// Adds to the transcript, and streams it. White space at both ends is not part of it.
std::optional<ApiError> Transcription::emit(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::string whole = held_ + std::string(text);
  const size_t end = whole.find_last_not_of(kBlank) + 1;  // npos + 1 = 0
  held_ = whole.substr(end);
  whole.resize(end);
  if (transcript_.text.empty()) whole.erase(0, std::min(whole.find_first_not_of(kBlank), whole.size()));
  if (transcript_.text.empty() && whole.empty()) held_.clear();
  if (whole.empty()) return std::nullopt;
  transcript_.text += whole;
  if (!reply_->share()->grow(static_cast<int64_t>(whole.size()))) return answers_full();
  if (!streams_) return std::nullopt;
  last_write_ = Clock::now();
  if (!reply_->write(openai::transcript_delta(whole))) {
    ended_ = true;
    cancel();
  }
  return std::nullopt;
}

/// Only as far as the most probable tokens tell: nullopt = it is not among them.
std::optional<double> Transcription::no_speech_probability() const {
  const WhisperTokens& tokens = model().tokens;
  if (!tokens.no_speech) return std::nullopt;
  // After <|startoftranscript|>: the prompt's next token, or the answer's first.
  const size_t after = tokens.languages.empty() ? 1 : 3;
  const TokenLogprobs* place = nullptr;
  if (after > 1 && prompt_logprobs_.size() + 1 == prompt_size_ && prompt_logprobs_.size() >= after - 1)
    place = &prompt_logprobs_[prompt_logprobs_.size() - (after - 1)];
  else if (after == 1 && !logprobs_.empty())
    place = &logprobs_.front();
  if (place == nullptr) return std::nullopt;
  for (const TokenLogprob& top : place->top)
    if (top.token_id == *tokens.no_speech) return std::exp(static_cast<double>(top.logprob));
  return std::nullopt;
}

std::optional<ApiError> Transcription::keep_segments() {
  const AudioInput& audio = model();
  const int64_t frames_a_step = audio.frames_a_step();
  const WindowResult window =
      split_window(answer_, *audio.tokens.first_time, (frames_ + frames_a_step - 1) / frames_a_step);
  const double begin = static_cast<double>(seek_) * audio.frame_seconds(), step = audio.step_seconds();
  const int64_t seek = seek_;
  seek_ += window.advance * frames_a_step;
  double logprob = 0;
  for (const TokenLogprobs& token : logprobs_)
    logprob += static_cast<double>(token.token.logprob);
  logprob /= static_cast<double>(std::max<size_t>(logprobs_.size(), 1));
  const auto silence = no_speech_probability();
  if (silence && *silence > kNoSpeech && logprob <= kLogprob) {
    seek_ = seek + frames_;
    return std::nullopt;
  }
  for (const WindowSegment& part : window.segments) {
    std::vector<int32_t> words;
    std::ranges::copy_if(part.tokens, std::back_inserter(words),
                         [&](int32_t id) { return id < audio.tokens.text_end; });
    std::string text = core_.engine->detokenize(words, true);
    if (part.start == part.end || text.find_first_not_of(kBlank) == std::string::npos) continue;
    if (auto error = emit(text)) return error;
    context_.insert(context_.end(), part.tokens.begin(), part.tokens.end());
    const auto bytes = static_cast<int64_t>(text.size() + part.tokens.size() * sizeof(int32_t) +
                                            sizeof(openai::TranscriptSegment));
    if (!reply_->share()->grow(bytes)) return answers_full();
    transcript_.segments.push_back({seek, begin + static_cast<double>(part.start) * step,
                                    begin + static_cast<double>(part.end) * step, std::move(text),
                                    part.tokens, logprob, silence});
  }
  return std::nullopt;
}

void Transcription::end_window() {
  bool more = false;
  if (detecting_) {
    detecting_ = false;
    for (const auto& [code, id] : model().tokens.languages)
      if (!answer_.empty() && id == answer_.front()) plan_.language = code;
    more = true;
  } else if (plan_.times) {
    if (const auto error = keep_segments()) return fail(*error);
    more = seek_ < plan_.samples() / model().input.hop_length;
  }
  if (ended_) return;  // the client has gone
  if (!more) return finish();
  core_.workers->add(reply_->client(),
                     [self = shared_from_this()] { guarded(self->reply_, [&] { self->next_window(); }); });
}

void Transcription::finish() {
  ended_ = true;
  if (const WhisperLanguage* language = find_whisper_language(plan_.translate ? "en" : plan_.language))
    transcript_.language = language->name;
  record(record_.finish);
  ticket_.reset();  // before the client can send its next request
  if (streams_) {
    reply_->write(openai::transcript_done(transcript_));
    reply_->end();
    return;
  }
  const auto format = plan_.request.format;
  reply_->respond({200,
                   std::string(openai::transcript_type(format)),
                   openai::transcript_text(format, transcript_),
                   {},
                   reply_->share()});
}

void Transcription::fail(const ApiError& error) {
  if (ended_) return;
  ended_ = true;
  ticket_.reset();
  if (streams_) {
    reply_->write(stream_error(reply_->style(), error));
    reply_->end();
  } else {
    refuse(*reply_, error);
  }
  cancel();
}

void Transcription::record(FinishReason reason) {
  if (std::exchange(recorded_, true) || !core_.metrics || record_.prompt_tokens == 0) return;
  record_.finish = reason;
  record_.e2e_seconds = to_seconds(Clock::now() - arrival_);
  core_.metrics->finished(record_);
}

void Transcription::abort() {
  reply_->exchange().post([self = shared_from_this()] { self->fail(shutting_down()); });
}

void Transcription::tick(Clock::time_point now) {
  const auto silent = [this, now] { return now - last_write_.load() >= core_.config.sse_ping; };
  if (!streams_ || !silent()) return;
  reply_->exchange().post([self = shared_from_this(), now, silent] {
    if (self->ended_ || !silent()) return;
    self->last_write_ = now;
    if (!self->reply_->write(": ping\n\n")) self->cancel();
  });
}

void Transcription::cancel() {
  std::optional<uint64_t> id;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_) return;
    cancelled_ = true;
    mailbox_.clear();
    id = id_;
  }
  if (id) core_.engine->cancel(*id);
}

}  // namespace fovea::server
