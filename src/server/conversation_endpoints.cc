// The endpoints of other vendors' APIs: their conversations become chats.
#include <algorithm>
#include <functional>

#include "server/answer_ids.h"
#include "server/anthropic/request.h"
#include "server/anthropic/writer.h"
#include "server/endpoint_steps.h"
#include "server/endpoints.h"
#include "server/responses/request.h"
#include "server/responses/writer.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;
using openai::ConversationRequest;

std::optional<ApiError> check_chats(const Core& core) {
  if (core.config.encoder)
    return bad_request("this model reads one text and has no chats; use /v1/completions");
  if (!core.engine->has_chat_template())
    return bad_request("this model has no chat template; use /v1/completions, or start with --chat-template");
  return std::nullopt;
}

/// The prompt's text, and how the answer is split.
std::optional<ApiError> render(const Core& core, ConversationRequest& request, std::string& text) {
  if (auto error = check_tools(core.formats, request.tools)) return error;
  request.chat.messages = openai::messages_json(
      openai::place_system_turns(std::move(request.turns), core.formats.system_turns_anywhere));
  auto rendered = core.engine->apply_chat_template(request.chat);
  if (!rendered) {
    ApiError error = error_of(rendered.error());
    if (error.status == 400) error.param = "messages";
    return error;
  }
  text = *std::move(rendered);
  apply_formats(core.formats, request.tools, text, request.common);
  return std::nullopt;
}

/// Reduces max_tokens to what the context has room for; true if it was.
bool limit_to_context(const Core& core, size_t prompt, openai::GenerationRequest& request) {
  const int64_t room = core.max_seq_len() - static_cast<int64_t>(prompt);
  auto& most = request.sampling.max_tokens;
  if (room <= 0 || !most || *most <= room) return false;
  most = static_cast<int>(room);
  return true;
}

/// Clients look for these words to know that they have to shorten the conversation.
ApiError prompt_too_long(ApiError error, const Core& core, size_t tokens) {
  if (error.code != "context_length_exceeded") return error;
  error.message = "prompt is too long: " + std::to_string(tokens) + " tokens > " +
                  std::to_string(core.max_seq_len()) + " maximum";
  return error;
}

/// Makes the writer; `to_context_end`: max_tokens went beyond the context.
using MakeWriter = std::function<std::unique_ptr<openai::AnswerWriter>(const openai::GenerationRequest&,
                                                                       bool to_context_end)>;

std::optional<ApiError> converse(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket,
                                 ConversationRequest parsed, const MakeWriter& make_writer) {
  const Core& core = reply->core();
  note_ignored(*reply, parsed);
  openai::GenerationRequest& request = parsed.common;
  if (auto error = admit(core, *ticket, request, 1)) return error;
  std::string text;
  if (auto error = render(core, parsed, text)) return error;
  auto tokens = core.engine->tokenize(text, false, static_cast<size_t>(core.max_seq_len()));
  if (!tokens) return bad_request("this model has no tokenizer; use /v1/completions with token ids");
  const size_t length = std::max(tokens->ids.size(), tokens->at_least);
  const bool to_end = limit_to_context(core, length, request);
  TokenizedPrompt prompt;
  std::optional<ApiError> error;
  if (tokens->at_least > 0)
    error = too_long(static_cast<size_t>(core.max_seq_len()), "at least " + std::to_string(length), "input");
  else
    error = take_prompt(core, request, std::move(tokens->ids), "input", prompt);
  if (error && reply->style() == ApiStyle::anthropic) return prompt_too_long(*std::move(error), core, length);
  if (error) return error;
  auto writer = make_writer(request, to_end);
  return generate(reply, ticket, openai::ApiKind::chat, std::move(request), {std::move(prompt)},
                  std::move(writer));
}

std::optional<ApiError> message(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  if (auto error = check_chats(core)) return error;
  auto parsed = anthropic::parse_messages(reply->request().body, parse_options(core));
  if (!parsed) return std::move(parsed).error();
  return converse(reply, ticket, *std::move(parsed),
                  [&](const openai::GenerationRequest& request, bool to_context_end) {
                    return anthropic::make_message_writer(
                        {random_id("msg_"), core.served_name(), to_context_end}, request);
                  });
}

std::optional<ApiError> response(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  if (auto error = check_chats(core)) return error;
  auto parsed = responses::parse_responses(reply->request().body, parse_options(core));
  if (!parsed) return std::move(parsed).error();
  return converse(
      reply, ticket, std::move(parsed->conversation), [&](const openai::GenerationRequest& request, bool) {
        return responses::make_responses_writer({random_id(""), core.served_name(), unix_seconds()},
                                                std::move(parsed->echo), request);
      });
}

std::optional<ApiError> count_tokens(Reply& reply) {
  const Core& core = reply.core();
  if (!core.engine) return bad_request("this model is an encoder, which has no messages");
  if (auto error = check_chats(core)) return error;
  auto parsed = anthropic::parse_messages(reply.request().body, parse_options(core), true);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (auto error = check_model(core, parsed->common.model)) return error;
  std::string text;
  if (auto error = render(core, *parsed, text)) return error;
  const auto ids = core.engine->tokenize(text, false);
  if (!ids) return bad_request("this model has no tokenizer");
  reply.respond({200, "application/json", anthropic::count_json(ids->size())});
  return std::nullopt;
}

}  // namespace

void post_message(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(message, std::move(reply), std::move(ticket));
}

void post_response(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(response, std::move(reply), std::move(ticket));
}

void post_count_tokens(Reply& reply) {
  if (auto error = count_tokens(reply)) refuse(reply, *error);
}

}  // namespace fovea::server
