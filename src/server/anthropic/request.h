#pragma once
// Requests of Anthropic's Messages API.
#include <string_view>

#include "server/openai/conversation.h"

namespace fovea::anthropic {

/// Parses a body of /v1/messages. Unknown fields are ignored and listed, as clients send new ones often, and
/// so are tools that run at the provider. A system text that begins with "x-anthropic-billing-header" is
/// dropped: it differs in every request and would end the reuse of the prompt's beginning.
/// `counts`: for /v1/messages/count_tokens, which needs no max_tokens.
openai::ApiResult<openai::ConversationRequest> parse_messages(std::string_view body,
                                                              const openai::ParseOptions& options,
                                                              bool counts = false);

}  // namespace fovea::anthropic
