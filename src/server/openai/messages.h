#pragma once
// The conversation of a chat: checked, and brought to the form that chat templates read.
#include "fovea/engine.h"
#include "server/openai/request_body.h"

namespace fovea::openai {

/// "messages" and what goes with them: add_generation_prompt, continue_final_message, documents,
/// chat_template_kwargs, reasoning_effort. Tools are refused.
///  - "developer" becomes "system", the role that templates know;
///  - a list of text parts becomes one string, joined by newlines;
///  - the content of an assistant's message that has none becomes "";
///  - arguments of tool calls, which clients send as text, become the object that it is.
void read_chat(Fields& fields, ChatRequest& out);

}  // namespace fovea::openai
