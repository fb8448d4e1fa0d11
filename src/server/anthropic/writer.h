#pragma once
// Answers of Anthropic's Messages API.
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/openai/answer_writer.h"

namespace fovea::anthropic {

struct MessageHead {
  std::string id;     ///< "msg_..."
  std::string model;  ///< the served name
  /// max_tokens went beyond the context, which then is why an answer ends.
  bool to_context_end = false;
};

std::unique_ptr<openai::AnswerWriter> make_message_writer(const MessageHead& head,
                                                          const openai::GenerationRequest& request);
/// /v1/models and one of its entries, for requests with the header anthropic-version. `created`: seconds
/// since 1970.
std::string models_json(std::span<const std::string> names, int64_t created);
std::string model_json(std::string_view name, int64_t created);
/// The answer of /v1/messages/count_tokens.
std::string count_json(size_t tokens);

}  // namespace fovea::anthropic
