#include "server/endpoints.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "server/generation.h"
#include "server/openai/answer_size.h"
#include "server/openai/response.h"
#include "server/text.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;

constexpr size_t kShownName = 100;
constexpr size_t kEmbedSlice = 64;  // inputs between two checks for a client disconnect

/// Truncates a client's `name`, which bounds the size of the error message.
std::string shown(const std::string& name) {
  return name.size() <= kShownName ? name : name.substr(0, kShownName) + "...";
}

void refuse(Reply& reply, const ApiError& error) {
  if (reply.core().metrics) reply.core().metrics->refused(error.status);
  reply.error(error);
}

/// Logs and reports unknown fields that were ignored (UnknownFields::ignored).
void note_ignored(Reply& reply, const openai::RequestBase& request) {
  if (request.ignored.empty()) return;
  std::string names;
  for (const std::string& field : request.ignored)
    names += (names.empty() ? "" : ", ") + field;
  FOVEA_LOG(info) << escaped(reply.request().id) << " unknown fields ignored: " << names;
  reply.add_header("X-Ignored-Fields", std::move(names));
}

int most_answers(const Core& core) {
  return static_cast<int>(std::min<int64_t>(openai::kMostPrompts, core.admission.most()));
}

openai::ParseOptions parse_options(const Core& core) {
  return {core.engine->default_sampling(), core.config.max_logprobs, most_answers(core),
          core.config.unknown_fields};
}

/// OpenAI's wording, which clients match. `tokens`: "20", "at least 20".
ApiError too_long(size_t longest, const std::string& tokens, const std::string& what) {
  return bad_request("This model's maximum context length is " + std::to_string(longest) +
                         " tokens. However, your " + what + " resulted in " + tokens +
                         " tokens. Please reduce the length of the " + what + ".",
                     what, "context_length_exceeded");
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

/// Stores a prompt's ids, or fails if there are too many. With an encoder-decoder model they are the
/// encoder's input, and the answer begins with the decoder prompt from the model's files.
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

/// Tokenises `text` into `prompt`; a text that is too long is refused before it is fully tokenised.
std::optional<ApiError> tokenize_prompt(const Core& core, const openai::GenerationRequest& request,
                                        std::string_view text, const char* what, TokenizedPrompt& prompt) {
  const auto longest =
      core.config.encoder ? core.config.encoder->longest : static_cast<size_t>(core.max_seq_len());
  auto tokens = core.engine->tokenize(text, request.add_special_tokens, longest);
  if (!tokens) return bad_request("this model has no tokenizer; give the prompt as token ids", what);
  if (tokens->at_least > 0) return too_long(longest, "at least " + std::to_string(tokens->at_least), what);
  return take_prompt(core, request, std::move(tokens->ids), what, prompt);
}

/// Refuses echo and prompt_logprobs with an encoder-decoder model: its answers do not continue the prompt.
std::optional<ApiError> check_encoder_request(const Core& core, const openai::GenerationRequest& request) {
  if (!core.config.encoder || !(request.echo || request.prompt_logprobs)) return std::nullopt;
  const char* field = request.echo ? "echo" : "prompt_logprobs";
  return bad_request(
      std::string(field) +
          ": this model reads the prompt with its encoder, so prompt log probabilities are not "
          "available; leave the field out",
      field);
}

/// The common path of completions and chats once their prompts are tokenised and their lengths checked.
std::optional<ApiError> generate(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket,
                                 openai::ApiKind kind, openai::GenerationRequest request,
                                 std::vector<TokenizedPrompt> prompts) {
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
  Generation::start(reply, std::move(ticket), kind, std::move(request), std::move(prompts), size);
  return std::nullopt;
}

/// Checks the model and the number of answers before tokenisation.
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

std::optional<ApiError> completion(std::shared_ptr<Reply>& reply,
                                   std::shared_ptr<Admission::Ticket>& ticket) {
  Core& core = reply->core();
  const Engine& engine = *core.engine;
  auto parsed = openai::parse_completion(reply->request().body, parse_options(core));
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  openai::GenerationRequest& request = parsed->common;
  if (auto error = check_encoder_request(core, request)) return error;
  if (auto error = admit(core, *ticket, request, parsed->prompts.size())) return error;
  std::vector<TokenizedPrompt> prompts;
  for (openai::Prompt& given : parsed->prompts) {
    TokenizedPrompt prompt;
    if (auto* text = std::get_if<std::string>(&given)) {
      if (auto error = tokenize_prompt(core, request, *text, "prompt", prompt)) return error;
      if (request.echo) prompt.text = std::move(*text);
    } else {
      auto& ids = std::get<std::vector<int32_t>>(given);
      if (auto error = take_prompt(core, request, std::move(ids), "prompt", prompt)) return error;
      if (request.echo) prompt.text = engine.detokenize(prompt.ids, false);
    }
    prompts.push_back(std::move(prompt));
  }
  return generate(reply, ticket, openai::ApiKind::completion, std::move(request), std::move(prompts));
}

std::optional<ApiError> chat_completion(std::shared_ptr<Reply>& reply,
                                        std::shared_ptr<Admission::Ticket>& ticket) {
  Core& core = reply->core();
  const Engine& engine = *core.engine;
  if (core.config.encoder)
    return bad_request("this model reads one text and has no chats; use /v1/completions");
  if (!engine.has_chat_template())
    return bad_request("this model has no chat template; use /v1/completions, or start with --chat-template");
  auto parsed = openai::parse_chat_completion(reply->request().body, parse_options(core));
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  openai::GenerationRequest& request = parsed->common;
  if (auto error = admit(core, *ticket, request, 1)) return error;
  if (auto error = check_tools(core.formats, parsed->tools)) return error;
  auto text = engine.apply_chat_template(parsed->chat);
  if (!text) {
    ApiError error = error_of(text.error());
    if (error.status == 400) error.param = "messages";
    return error;
  }
  apply_formats(core.formats, parsed->tools, *text, request);
  TokenizedPrompt prompt;
  if (auto error = tokenize_prompt(core, request, *text, "messages", prompt)) return error;
  return generate(reply, ticket, openai::ApiKind::chat, std::move(request), {std::move(prompt)});
}

using Endpoint = std::optional<ApiError> (*)(std::shared_ptr<Reply>&, std::shared_ptr<Admission::Ticket>&);

void run(Endpoint endpoint, std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  if (auto error = endpoint(reply, ticket)) {
    ticket.reset();  // before the client can send its next request
    refuse(*reply, *error);
  }
}

std::optional<ApiError> embedding(std::shared_ptr<Reply>& shared_reply,
                                  std::shared_ptr<Admission::Ticket>& ticket) {
  Reply& reply = *shared_reply;
  const Core& core = reply.core();
  Embedder& embedder = *core.embedder;
  auto parsed = openai::parse_embedding(reply.request().body, reply.core().config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  const int dimensions = embedder.info().dimensions;
  if (parsed->dimensions && *parsed->dimensions != dimensions)
    return bad_request("dimensions is " + std::to_string(*parsed->dimensions) + "; this model's are " +
                           std::to_string(dimensions),
                       "dimensions");
  const auto longest = static_cast<size_t>(embedder.info().max_seq_len);
  const int64_t bytes = openai::embeddings_size(parsed->inputs.size(), dimensions, parsed->base64);
  if (bytes > core.config.max_answer_bytes)
    return answer_too_large(core, bytes,
                            std::to_string(parsed->inputs.size()) + " inputs, " + std::to_string(dimensions) +
                                " dimensions, encoding_format " + (parsed->base64 ? "base64" : "float"),
                            "input");
  const auto share = std::make_shared<AnswerShare>(core.answers);
  if (!share->grow(bytes)) return answers_full();
  std::vector<std::vector<int32_t>> inputs;
  int tokens = 0;
  for (openai::Prompt& given : parsed->inputs) {
    std::vector<int32_t> ids;
    if (const auto* text = std::get_if<std::string>(&given)) {
      size_t at_least = 0;
      auto of_text = embedder.tokenize(*text, parsed->truncate, &at_least);
      if (at_least > 0) return too_long(longest, "at least " + std::to_string(at_least), "input");
      if (!of_text) return bad_request(of_text.error().message, "input");
      ids = *std::move(of_text);
    } else {
      ids = std::move(std::get<std::vector<int32_t>>(given));
      if (parsed->truncate) ids.resize(std::min(ids.size(), longest));
      if (ids.size() > longest) return too_long(longest, std::to_string(ids.size()), "input");
    }
    if (const Status fits = embedder.check(ids); !fits) return bad_request(fits.error().message, "input");
    tokens += static_cast<int>(ids.size());
    inputs.push_back(std::move(ids));
  }
  if (const auto verdict = ticket->set_prompt_tokens(tokens); verdict != Admission::Verdict::admitted)
    return overloaded(verdict);
  std::vector<std::vector<float>> vectors;
  for (size_t at = 0; at < inputs.size(); at += kEmbedSlice) {
    if (reply.done()) return std::nullopt;  // the client has disconnected
    if (core.aborted.load()) return shutting_down();
    auto slice = embedder.embed(std::span(inputs).subspan(at, std::min(kEmbedSlice, inputs.size() - at)));
    if (!slice) return error_of(slice.error());
    std::ranges::move(*slice, std::back_inserter(vectors));
  }
  ticket.reset();  // before the client can send its next request
  reply.respond({200,
                 "application/json",
                 openai::embeddings_json(core.served_name(), vectors, parsed->base64, tokens),
                 {},
                 share});
  return std::nullopt;
}

std::optional<ApiError> tokenize(Reply& reply) {
  const Core& core = reply.core();
  auto parsed = openai::parse_tokenize(reply.request().body, reply.core().config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  const Engine* engine = core.engine;
  if (parsed->chat && engine == nullptr)
    return bad_request("this model is an encoder and has no chat template; give a prompt", "messages");
  std::string text = parsed->prompt.value_or("");
  if (parsed->chat) {
    auto rendered = engine->apply_chat_template(*parsed->chat);
    if (!rendered) return error_of(rendered.error());
    text = *std::move(rendered);
  }
  auto ids =
      engine ? engine->tokenize(text, parsed->add_special_tokens) : core.embedder->tokenize(text, false);
  if (!ids) return engine ? bad_request("this model has no tokenizer") : error_of(ids.error());
  const openai::TokenText words{[engine](int32_t id) { return engine->token_bytes(id); }};
  const bool with_words = parsed->return_token_strs && engine != nullptr;
  reply.respond({200, "application/json",
                 openai::tokenize_json(*ids, core.max_seq_len(), with_words ? &words : nullptr)});
  return std::nullopt;
}

std::optional<ApiError> detokenize(Reply& reply) {
  const Core& core = reply.core();
  if (core.engine == nullptr) return bad_request("this model is an embedding model without detokenization");
  auto parsed = openai::parse_detokenize(reply.request().body, reply.core().config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  const int vocab = core.engine->info().vocab_size;
  for (size_t i = 0; i < parsed->tokens.size(); ++i)
    if (const int32_t id = parsed->tokens[i]; id < 0 || id >= vocab)
      return bad_request("tokens[" + std::to_string(i) + "] is " + std::to_string(id) +
                             "; this model's ids are 0 to " + std::to_string(vocab - 1),
                         "tokens");
  reply.respond(
      {200, "application/json", openai::detokenize_json(core.engine->detokenize(parsed->tokens, false))});
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> check_model(const Core& core, const std::string& name) {
  const auto& names = core.config.served_names;
  if (name.empty() || std::ranges::find(names, name) != names.end()) return std::nullopt;
  return ApiError{404, "The model `" + shown(name) + "` does not exist.", "model", "model_not_found"};
}

void post_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run(completion, std::move(reply), std::move(ticket));
}

void post_chat_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run(chat_completion, std::move(reply), std::move(ticket));
}

void post_embedding(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run(embedding, std::move(reply), std::move(ticket));
}

void post_tokenize(Reply& reply) {
  if (auto error = tokenize(reply)) refuse(reply, *error);
}

void post_detokenize(Reply& reply) {
  if (auto error = detokenize(reply)) refuse(reply, *error);
}

}  // namespace fovea::server
