#pragma once
// Answers of OpenAI's Responses API.
#include <memory>
#include <string>

#include "server/openai/answer_writer.h"
#include "server/responses/request.h"

namespace fovea::responses {

struct ResponseHead {
  std::string id;     ///< random hex: of "resp_..." and of the items
  std::string model;  ///< the served name
  int64_t created = 0;
};

std::unique_ptr<openai::AnswerWriter> make_responses_writer(ResponseHead head, Echo echo,
                                                            const openai::GenerationRequest& request);

}  // namespace fovea::responses
