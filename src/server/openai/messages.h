#pragma once
// Parses and validates the messages of a chat into the form that chat templates expect.
#include "fovea/engine.h"
#include "server/openai/request_body.h"

namespace fovea::openai {

/// Reads "messages" and related fields: add_generation_prompt, continue_final_message, documents,
/// chat_template_kwargs, reasoning_effort. read_tools() reads tools.
///  - "developer" becomes "system", the role that templates support;
///  - a list of text parts becomes one string, joined by newlines;
///  - missing content of an assistant's message becomes "", or its refusal;
///  - arguments of tool calls, which clients send as JSON text, are parsed to objects.
void read_chat(Fields& fields, ChatRequest& out);

}  // namespace fovea::openai
