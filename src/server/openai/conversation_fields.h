#pragma once
// What the parsers of ConversationRequests share.
#include <functional>
#include <string>

#include "server/openai/conversation.h"

namespace fovea::openai {

/// The body's fields, read by `read`; unknown ones are ignored and listed.
ApiResult<ConversationRequest> parse_conversation(
    std::string_view body, const ParseOptions& options,
    const std::function<void(Fields&, ConversationRequest&)>& read);

/// Reads temperature, top_p, top_k and what other servers add to them; checks are those of chats.
void read_conversation_sampling(Fields& fields, GenerationRequest& out);

/// A tool in OpenAI's form; null = left out.
text::Json function_tool(std::string name, const std::string* description, const text::Json* parameters);
/// tool_choice for one tool.
text::Json named_choice(std::string name);
/// `tools`: from function_tool(); `choice`: as tool_choice of chats, null = not given.
void take_tools(Fields& fields, text::Json::Array tools, text::Json choice, bool parallel,
                ConversationRequest& out);

/// Sets the template variables that turn thinking on and off, and its effort, unless they are there.
void set_thinking(text::Json::Object& kwargs, bool on);
void set_effort(text::Json::Object& kwargs, std::string effort);
void constrain_to_schema(GenerationRequest& out, std::string field, std::string schema, bool strict);

}  // namespace fovea::openai
