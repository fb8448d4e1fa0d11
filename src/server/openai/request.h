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
#include "server/openai/request_body.h"

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
  bool add_special_tokens = true;  ///< default: true for completions, false for chats
};

/// What all requests have beside their own.
struct RequestBase {
  std::vector<std::string> ignored;  ///< fields that are not known, where those are ignored
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest : RequestBase {
  GenerationRequest common;
  std::vector<Prompt> prompts;  ///< at least one
};

struct ChatCompletionRequest : RequestBase {
  GenerationRequest common;
  ChatRequest chat;           ///< roles and contents checked, text parts joined
  bool top_logprobs = false;  ///< whether logprobs were asked for at all is common.sampling.logprobs
};

struct EmbeddingRequest : RequestBase {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;            ///< encoding_format
  std::optional<int> dimensions;  ///< refused unless it is the model's
  bool truncate = false;          ///< vLLM's truncate_prompt_tokens: -1
};

struct TokenizeRequest : RequestBase {
  std::string model;
  std::optional<std::string> prompt;
  std::optional<ChatRequest> chat;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};

struct DetokenizeRequest : RequestBase {
  std::string model;
  std::vector<int32_t> tokens;
};

/// Of a request, and so of its answers: as OpenAI's inputs of embeddings.
inline constexpr int kMostPrompts = 2048;

struct ParseOptions {
  SamplingParams defaults = {};  ///< Engine::default_sampling()
  int max_logprobs = 20;         ///< EngineConfig's
  int most_prompts = kMostPrompts;
  UnknownFields unknown = UnknownFields::refused;
};

ApiResult<CompletionRequest> parse_completion(std::string_view body, const ParseOptions& options);
ApiResult<ChatCompletionRequest> parse_chat_completion(std::string_view body, const ParseOptions& options);
ApiResult<EmbeddingRequest> parse_embedding(std::string_view body,
                                            UnknownFields unknown = UnknownFields::refused);
ApiResult<TokenizeRequest> parse_tokenize(std::string_view body,
                                          UnknownFields unknown = UnknownFields::refused);
ApiResult<DetokenizeRequest> parse_detokenize(std::string_view body,
                                              UnknownFields unknown = UnknownFields::refused);

/// The fields that the requests of a path may have beside those of field_rules(), for the docs.
struct ReadFields {
  std::string_view path;
  std::vector<std::string_view> names;  ///< sorted
};
std::vector<ReadFields> read_fields();

}  // namespace fovea::openai
