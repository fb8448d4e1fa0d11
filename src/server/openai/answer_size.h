#pragma once
// About how many bytes of JSON an answer will have, known before anything is computed.
#include <cstdint>
#include <span>
#include <string>

#include "server/openai/request.h"
#include "server/openai/response.h"

namespace fovea::openai {

struct AnswerSize {
  int64_t prompts = 0;    ///< what is said of the prompts, and each choice's frame
  int64_t per_token = 0;  ///< of an answer
  int64_t tokens = 0;     ///< of all answers at most; 0 where the request gives no max_tokens
  std::string what;       ///< the numbers that it follows from, for a refusal
  std::string param;      ///< the field that most of it comes from
  int64_t whole() const { return prompts + per_token * tokens; }
};

/// `prompt_tokens` of each prompt; `vocab_size` for log probabilities of all tokens (-1).
AnswerSize answer_size(ApiKind kind, const GenerationRequest& request, std::span<const int64_t> prompt_tokens,
                       int vocab_size);
/// Of embeddings.
int64_t embeddings_size(size_t inputs, int dimensions, bool base64);

}  // namespace fovea::openai
