#pragma once
// The chat template of gpt-oss, for folders that have none: OpenAI's harmony format.
#include <string_view>

namespace fovea {

/// Jinja. Besides the common variables it reads `reasoning_effort` ("medium"), `model_identity` and `date`
/// (today).
///
/// Rules: a system message of the format's own, then a developer message with the conversation's first system
/// or developer message as instructions, and the tools as types of TypeScript. Reasoning (channel analysis)
/// is written behind the last answer only: where calls follow, the model goes on with it. Text beside calls
/// is a message of the channel commentary. Each call is a message, and each result is one of its function.
std::string_view harmony_template();

}  // namespace fovea
