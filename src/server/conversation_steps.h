#pragma once
// The steps that endpoints with conversations share. Each returns an error for the client.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/endpoint_steps.h"
#include "server/openai/conversation.h"

namespace fovea::server {

/// Why the model has no chats.
std::optional<openai::ApiError> check_chats(const Core& core);
/// The prompt's text, and how the answer is split.
std::optional<openai::ApiError> render(const Core& core, openai::ConversationRequest& request,
                                       std::string& text);

/// Makes the writer; `to_context_end`: max_tokens went beyond the context.
using MakeWriter = std::function<std::unique_ptr<openai::AnswerWriter>(
    const openai::GenerationRequest& request, bool to_context_end)>;
/// All steps behind the parser. max_tokens is reduced to what the context has room for. `raw`: the prompt's
/// text, null = the conversation is rendered.
std::optional<openai::ApiError> converse(std::shared_ptr<Reply>& reply,
                                         std::shared_ptr<Admission::Ticket>& ticket,
                                         openai::ConversationRequest parsed, const MakeWriter& make_writer,
                                         const std::string* raw = nullptr);

}  // namespace fovea::server
