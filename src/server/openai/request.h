#pragma once
// What clients ask for: JSON bodies of the OpenAI API (and the extras of vLLM and SGLang that clients use),
// checked and turned into the engine's words. No engine is needed: token ids and lengths are checked by who
// has one.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/engine.h"
#include "server/openai/error.h"

namespace fovea::openai {

/// What /v1/completions and /v1/chat/completions share.
struct GenerationRequest {
  std::string model;        ///< "" = not given: the served one
  SamplingParams sampling;  ///< the request's fields over `defaults` of the parse functions
  bool max_tokens_given = false;
  std::optional<int> prompt_logprobs;
  int priority = 0;
  bool stream = false;
  bool include_usage = false;         ///< stream_options: a last chunk with usage
  bool continuous_usage = false;      ///< stream_options: usage in every chunk
  bool return_token_ids = false;      ///< vLLM: "token_ids" of choices, "prompt_token_ids"
  bool return_tokens_as_ids = false;  ///< vLLM's return_tokens_as_token_ids: "token_id:123" in logprobs
  bool echo = false;
  bool add_special_tokens = true;    ///< default: true for completions, false for chats
  std::string user;                  ///< not used; kept for the log
  std::vector<std::string> ignored;  ///< fields that are not known (vLLM's rule: accepted, logged)
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  GenerationRequest common;
  std::vector<Prompt> prompts;  ///< at least one
};

struct ChatCompletionRequest {
  GenerationRequest common;
  ChatRequest chat;           ///< roles and contents checked, text parts joined
  bool top_logprobs = false;  ///< whether logprobs were asked for at all is common.sampling.logprobs
};

struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;            ///< encoding_format
  std::optional<int> dimensions;  ///< refused unless it is the model's
  bool truncate = false;          ///< vLLM's truncate_prompt_tokens: -1
};

struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<ChatRequest> chat;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};

/// Of a request, and so of its answers: as OpenAI's inputs of embeddings.
inline constexpr int kMostPrompts = 2048;

/// `defaults`: Engine::default_sampling(). `max_logprobs`: EngineConfig's.
ApiResult<CompletionRequest> parse_completion(std::string_view body, const SamplingParams& defaults,
                                              int max_logprobs, int most_prompts = kMostPrompts);
ApiResult<ChatCompletionRequest> parse_chat_completion(std::string_view body, const SamplingParams& defaults,
                                                       int max_logprobs);
ApiResult<EmbeddingRequest> parse_embedding(std::string_view body);
ApiResult<TokenizeRequest> parse_tokenize(std::string_view body);
ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body);

}  // namespace fovea::openai
