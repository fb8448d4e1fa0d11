#include "server/conversation_steps.h"

#include <algorithm>

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;
using openai::ConversationRequest;

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

}  // namespace

std::optional<ApiError> check_chats(const Core& core) {
  if (core.config.encoder)
    return bad_request("this model reads one text and has no chats; use /v1/completions");
  if (!core.engine->has_chat_template())
    return bad_request("this model has no chat template; use /v1/completions, or start with --chat-template");
  return std::nullopt;
}

std::optional<ApiError> render(const Core& core, ConversationRequest& request, std::string& text) {
  if (auto error = check_tools(core.formats, request.tools)) return error;
  request.chat.messages = openai::messages_json(
      openai::place_system_turns(std::move(request.turns), core.formats.system_turns_anywhere));
  auto rendered = render_chat(core, request.chat);
  if (!rendered) {
    ApiError error = error_of(rendered.error());
    if (error.status == 400) error.param = "messages";
    return error;
  }
  text = *std::move(rendered);
  apply_formats(core.formats, request.tools, text, request.common);
  return std::nullopt;
}

std::optional<ApiError> converse(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket,
                                 ConversationRequest parsed, const MakeWriter& make_writer,
                                 const std::string* raw) {
  const Core& core = reply->core();
  note_ignored(*reply, parsed);
  openai::GenerationRequest& request = parsed.common;
  if (auto error = admit(core, *ticket, request, 1)) return error;
  std::string text;
  if (raw)
    text = *raw;
  else if (auto error = render(core, parsed, text))
    return error;
  auto tokens =
      core.engine->tokenize(text, request.add_special_tokens, static_cast<size_t>(core.max_seq_len()));
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

}  // namespace fovea::server
