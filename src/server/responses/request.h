#pragma once
// Requests of OpenAI's Responses API, as far as agents use it.
#include <string>
#include <string_view>

#include "server/openai/conversation.h"

namespace fovea::responses {

/// Members of a request that its answer repeats, as JSON.
struct Echo {
  std::string instructions = "null", tools = "[]", tool_choice = "\"auto\"", reasoning = "null",
              text = R"({"format":{"type":"text"}})", metadata = "{}";
  bool parallel = true;
};

struct ResponsesRequest {
  openai::ConversationRequest conversation;
  Echo echo;
};

/// Parses a body of /v1/responses. Unknown fields are ignored and listed, and so are tools that are no
/// functions. What would need stored answers is refused by name.
openai::ApiResult<ResponsesRequest> parse_responses(std::string_view body,
                                                    const openai::ParseOptions& options);

}  // namespace fovea::responses
