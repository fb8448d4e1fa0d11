#pragma once
// Estimates of an answer's JSON size in bytes, made before anything is computed.
#include <cstdint>
#include <span>
#include <string>

#include "server/openai/request.h"
#include "server/openai/response.h"

namespace fovea::openai {

struct AnswerSize {
  int64_t prompts = 0;    ///< bytes for the prompts and for each choice's fixed part
  int64_t per_token = 0;  ///< bytes a generated token
  int64_t tokens = 0;     ///< maximum over all answers; 0 without max_tokens in the request
  std::string what;       ///< the numbers behind the estimate, for the error message
  std::string param;      ///< the field that contributes most
  int64_t whole() const { return prompts + per_token * tokens; }
};

/// `prompt_tokens`: for each prompt. `vocab_size`: for log probabilities of all tokens (-1).
AnswerSize answer_size(ApiKind kind, const GenerationRequest& request, std::span<const int64_t> prompt_tokens,
                       int vocab_size);
/// The size in bytes of an embeddings answer.
int64_t embeddings_size(size_t inputs, int dimensions, bool base64);

}  // namespace fovea::openai
