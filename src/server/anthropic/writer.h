#pragma once
// Answers of Anthropic's Messages API.
#include <memory>
#include <string>

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
/// The answer of /v1/messages/count_tokens.
std::string count_json(size_t tokens);

}  // namespace fovea::anthropic
