#pragma once
// Requests of Ollama's API.
#include <string>
#include <string_view>

#include "server/openai/conversation.h"

namespace fovea::ollama {

struct OllamaRequest {
  openai::ConversationRequest conversation;
  bool generates = false;   ///< /api/generate: the answer has "response" instead of "message"
  bool only_loads = false;  ///< there is nothing to answer
  bool raw = false;         ///< `prompt` is not rendered by the chat template
  std::string prompt;
};

/// Parse bodies of /api/chat and /api/generate. Unknown fields and options are ignored and listed.
openai::ApiResult<OllamaRequest> parse_chat(std::string_view body, const openai::ParseOptions& options);
openai::ApiResult<OllamaRequest> parse_generate(std::string_view body, const openai::ParseOptions& options);
/// The model that a body of /api/show names.
openai::ApiResult<std::string> parse_show(std::string_view body);

}  // namespace fovea::ollama
