#pragma once
// The fields that /v1/completions and /v1/chat/completions share.
#include "server/openai/request.h"
#include "server/openai/request_body.h"

namespace fovea::openai {

/// "temperature", with OpenAI's limit.
void read_temperature(Fields& fields, SamplingParams& out);

/// Reads all shared fields except logprobs, whose form differs. check_generation() checks the values.
void read_generation(Fields& fields, const SamplingParams& defaults, GenerationRequest& out);

/// Checks the values and their combinations; `max_logprobs` as in EngineConfig. The engine checks token ids
/// against the vocabulary.
std::optional<ApiError> check_generation(const GenerationRequest& request, int max_logprobs);

}  // namespace fovea::openai
