// The endpoints that take audio.
#include <algorithm>

#include "server/endpoint_steps.h"
#include "server/endpoints.h"
#include "server/http/multipart.h"
#include "server/transcription.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;

openai::ApiResult<openai::TranscriptionRequest> parse(const Reply& reply) {
  const http::Request& request = reply.request();
  const auto boundary = http::form_boundary(request.header("content-type"));
  if (!boundary) return bad_request(boundary.error().message);
  auto parts = http::parse_form(request.body, *boundary);
  if (!parts) return bad_request(parts.error().message);
  std::vector<openai::FormField> fields;
  for (http::FormPart& part : *parts)
    fields.push_back({std::move(part.name), part.data});
  return openai::parse_transcription(fields, reply.core().config.unknown_fields);
}

/// Checks what depends on the model, and fills the rest of the plan.
std::optional<ApiError> plan_for(const Core& core, TranscriptionPlan& plan) {
  const AudioInput& model = *core.config.audio;
  const openai::TranscriptionRequest& request = plan.request;
  const WavFile& audio = plan.audio;
  auto resampler = Resampler::create(audio.sample_rate(), model.input.sample_rate);
  if (!resampler) return bad_request("file: " + resampler.error().message, "file");
  plan.resampler = *std::move(resampler);
  if (audio.samples() == 0) return bad_request("file: it has no samples", "file");
  if (!request.language.empty()) {
    const WhisperLanguage* language = find_whisper_language(request.language);
    if (language == nullptr)
      return bad_request("language is " + openai::shown(text::Json(request.language)) +
                             "; it must be a language's code, for instance \"en\", or English name",
                         "language");
    const auto& known = model.tokens.languages;
    const bool english = known.empty() && language->code == "en";
    if (!english && !known.contains(language->code))
      return bad_request("language is \"" + std::string(language->code) + "\"; this model " +
                             (known.empty() ? "knows English alone" : "does not know it"),
                         "language");
    plan.language = language->code;
  }
  if (plan.translate && (!model.tokens.translate || model.tokens.languages.empty()))
    return bad_request("this model does not translate; use /v1/audio/transcriptions");
  const bool long_audio = plan.samples() > model.input.window_samples();
  plan.times = long_audio || request.timed();
  if (plan.times && !model.tokens.first_time)
    return bad_request(
        "this model has no timestamp tokens: response_format must be json or text, and the audio at most " +
            std::to_string(model.input.chunk_length) + " seconds long",
        request.timed() ? "response_format" : "file");
  if (request.prompt.empty()) return std::nullopt;
  if (!model.tokens.previous)
    return bad_request("prompt: this model has no <|startofprev|> token; leave it out", "prompt");
  const size_t first = request.prompt.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return std::nullopt;
  const std::string text =
      " " + request.prompt.substr(first, request.prompt.find_last_not_of(" \t\r\n") + 1 - first);
  auto ids = core.engine->tokenize(text, false);
  if (!ids) return bad_request("this model has no tokenizer; leave the prompt out", "prompt");
  // Text alone: the names of special tokens in it would end or redirect the transcript.
  std::erase_if(*ids, [&](int32_t id) { return id >= model.tokens.text_end; });
  plan.prompt = *std::move(ids);
  return std::nullopt;
}

std::optional<ApiError> transcribe(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket,
                                   bool translate) {
  const Core& core = reply->core();
  auto parsed = parse(*reply);
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  auto audio = WavFile::parse(std::as_bytes(std::span(parsed->audio)), "file");
  if (!audio) return bad_request(audio.error().message, "file");
  TranscriptionPlan plan;
  plan.request = *std::move(parsed);
  plan.audio = *audio;
  plan.translate = translate;
  if (auto error = plan_for(core, plan)) return error;
  if (const auto verdict = ticket->set_prompt_tokens(core.config.audio->steps);
      verdict != Admission::Verdict::admitted)
    return overloaded(verdict);
  if (core.draining.load()) return shutting_down();
  Transcription::start(reply, std::move(ticket), std::move(plan));
  return std::nullopt;
}

}  // namespace

void post_transcription(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint([](auto& to, auto& held) { return transcribe(to, held, false); }, std::move(reply),
               std::move(ticket));
}

void post_translation(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint([](auto& to, auto& held) { return transcribe(to, held, true); }, std::move(reply),
               std::move(ticket));
}

}  // namespace fovea::server
