#include "server/endpoint_steps.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "base/log.h"
#include "server/answer_formats.h"
#include "server/openai/answer_size.h"
#include "server/text.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;

constexpr size_t kShownName = 100;

/// Truncates a client's `name`, which bounds the size of the error message.
std::string shown(const std::string& name) {
  return name.size() <= kShownName ? name : name.substr(0, kShownName) + "...";
}

int most_answers(const Core& core) {
  return static_cast<int>(std::min<int64_t>(openai::kMostPrompts, core.admission.most()));
}

std::optional<ApiError> check_length(const Core& core, const openai::GenerationRequest& request,
                                     size_t prompt, const char* what) {
  const auto longest = static_cast<size_t>(core.max_seq_len());
  const auto wanted = static_cast<size_t>(std::max(0, request.sampling.max_tokens.value_or(0)));
  const bool generates = request.sampling.max_tokens.value_or(1) > 0;
  if (prompt > longest || (generates && prompt == longest))
    return too_long(longest, std::to_string(prompt), what);
  if (request.max_tokens_given && prompt + wanted > longest)
    return bad_request("This model's maximum context length is " + std::to_string(longest) +
                           " tokens. However, you requested " + std::to_string(prompt + wanted) +
                           " tokens (" + std::to_string(prompt) + " in the " + what + ", " +
                           std::to_string(wanted) + " in the completion). Please reduce the length of the " +
                           what + " or completion.",
                       what, "context_length_exceeded");
  return std::nullopt;
}

/// Whether a line of the log has named all fields. Clients send the same ones with each request, so that
/// later lines are of a lower level.
bool reported_before(const std::vector<std::string>& fields) {
  constexpr size_t kMost = 1000;
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::lock_guard lock(mutex);
  bool all = true;
  for (const std::string& field : fields)
    if (!reported.contains(field) && reported.size() < kMost) {
      reported.insert(field);
      all = false;
    }
  return all;
}

}  // namespace

void refuse(Reply& reply, const ApiError& error) {
  if (reply.core().metrics) reply.core().metrics->refused(error.status);
  reply.error(error);
}

void note_ignored(Reply& reply, const openai::RequestBase& request) {
  if (request.ignored.empty()) return;
  std::string names;
  for (const std::string& field : request.ignored)
    names += (names.empty() ? "" : ", ") + field;
  const std::string line = escaped(reply.request().id) + " unknown fields ignored: " + names;
  if (reported_before(request.ignored))
    FOVEA_LOG(info) << line;
  else
    FOVEA_LOG(warning) << line;
  reply.add_header("X-Ignored-Fields", std::move(names));
}

Result<std::string> render_chat(const Core& core, ChatRequest chat) {
  add_template_defaults(core.config.template_kwargs, chat);
  return core.engine->apply_chat_template(chat);
}

openai::ParseOptions parse_options(const Core& core) {
  return {core.engine->default_sampling(), core.config.max_logprobs, most_answers(core),
          core.config.unknown_fields};
}

std::optional<ApiError> check_model(const Core& core, const std::string& name) {
  if (name.empty() || core.has_model(name)) return std::nullopt;
  return ApiError{404, "The model `" + shown(name) + "` does not exist.", "model", "model_not_found"};
}

std::string untagged(const Core& core, const std::string& name) {
  constexpr std::string_view kLatest = ":latest";
  return !core.has_model(name) && name.ends_with(kLatest) ? name.substr(0, name.size() - kLatest.size())
                                                          : name;
}

ApiError too_long(size_t longest, const std::string& tokens, const std::string& what) {
  return bad_request("This model's maximum context length is " + std::to_string(longest) +
                         " tokens. However, your " + what + " resulted in " + tokens +
                         " tokens. Please reduce the length of the " + what + ".",
                     what, "context_length_exceeded");
}

std::optional<ApiError> take_prompt(const Core& core, const openai::GenerationRequest& request,
                                    std::vector<int32_t> ids, const char* what, TokenizedPrompt& prompt) {
  const auto& encoder = core.config.encoder;
  prompt.ids = std::move(ids);
  if (encoder) {
    prompt.encoder_ids = std::exchange(prompt.ids, encoder->decoder_prompt);
    if (prompt.encoder_ids.size() > encoder->longest)
      return too_long(encoder->longest, std::to_string(prompt.encoder_ids.size()), what);
  }
  return check_length(core, request, prompt.ids.size(), what);
}

std::optional<ApiError> tokenize_prompt(const Core& core, const openai::GenerationRequest& request,
                                        std::string_view text, const char* what, TokenizedPrompt& prompt) {
  const auto longest =
      core.config.encoder ? core.config.encoder->longest : static_cast<size_t>(core.max_seq_len());
  auto tokens = core.engine->tokenize(text, request.add_special_tokens, longest);
  if (!tokens) return bad_request("this model has no tokenizer; give the prompt as token ids", what);
  if (tokens->at_least > 0) return too_long(longest, "at least " + std::to_string(tokens->at_least), what);
  return take_prompt(core, request, std::move(tokens->ids), what, prompt);
}

std::optional<ApiError> admit(const Core& core, Admission::Ticket& ticket,
                              const openai::GenerationRequest& request, size_t prompts) {
  if (auto error = check_model(core, request.model)) return error;
  const auto answers = prompts * static_cast<size_t>(std::max(1, request.sampling.n));
  // Each answer has its own state, so the limit covers n times the number of prompts. It is no larger than
  // the queue: a request above that would be refused on every retry.
  if (const auto most = static_cast<size_t>(most_answers(core)); answers > most)
    return bad_request("n is " + std::to_string(request.sampling.n) + " for " + std::to_string(prompts) +
                           " prompts; at most " + std::to_string(most) + " answers are allowed in a request",
                       "n");
  if (const auto verdict = ticket.set_answers(static_cast<int>(answers));
      verdict != Admission::Verdict::admitted)
    return overloaded(verdict);
  return std::nullopt;
}

std::optional<ApiError> generate(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket,
                                 openai::ApiKind kind, openai::GenerationRequest request,
                                 std::vector<TokenizedPrompt> prompts,
                                 std::unique_ptr<openai::AnswerWriter> writer) {
  Core& core = reply->core();
  std::vector<int64_t> lengths;
  for (const TokenizedPrompt& prompt : prompts)
    lengths.push_back(static_cast<int64_t>(prompt.read().size()));
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const auto size = openai::answer_size(kind, request, lengths, core.engine->info().vocab_size);
  // A stream's tokens are not kept: they are sent as they are generated.
  if (const int64_t bytes = request.stream ? size.prompts : size.whole();
      bytes > core.config.max_answer_bytes)
    return answer_too_large(core, bytes, size.what, size.param);
  if (const auto verdict = ticket->set_prompt_tokens(tokens); verdict != Admission::Verdict::admitted)
    return overloaded(verdict);
  if (core.draining.load()) return shutting_down();
  Generation::start(reply, std::move(ticket), kind, std::move(request), std::move(prompts), size,
                    std::move(writer));
  return std::nullopt;
}

void run_endpoint(Endpoint endpoint, std::shared_ptr<Reply> reply,
                  std::shared_ptr<Admission::Ticket> ticket) {
  if (auto error = endpoint(reply, ticket)) {
    ticket.reset();  // before the client can send its next request
    refuse(*reply, *error);
  }
}

}  // namespace fovea::server
