#include "server/endpoints.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "server/endpoint_steps.h"
#include "server/openai/answer_size.h"
#include "server/openai/response.h"
#include "server/text.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;

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
  auto text = render_chat(core, parsed->chat);
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
    auto rendered = render_chat(core, *parsed->chat);
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

void post_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(completion, std::move(reply), std::move(ticket));
}

void post_chat_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(chat_completion, std::move(reply), std::move(ticket));
}

void post_tokenize(Reply& reply) {
  if (auto error = tokenize(reply)) refuse(reply, *error);
}

void post_detokenize(Reply& reply) {
  if (auto error = detokenize(reply)) refuse(reply, *error);
}

}  // namespace fovea::server
