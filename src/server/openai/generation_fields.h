#pragma once
// The fields that /v1/completions and /v1/chat/completions share.
#include "server/openai/request.h"
#include "server/openai/request_body.h"

namespace fovea::openai {

/// Everything but logprobs, whose form differs. Values are checked by check_generation().
void read_generation(Fields& fields, const SamplingParams& defaults, GenerationRequest& out);

/// What is wrong with the values together, for `max_logprobs` as EngineConfig's. Token ids of this model's
/// vocabulary are checked by the engine.
std::optional<ApiError> check_generation(const GenerationRequest& request, int max_logprobs);

}  // namespace fovea::openai
