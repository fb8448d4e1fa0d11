#pragma once
// Parses and validates JSON request bodies of the OpenAI API (with the extensions of vLLM and SGLang that
// clients use) into engine types. It needs no engine: the endpoints check token ids and lengths.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/engine.h"
#include "server/openai/answer_parser.h"
#include "server/openai/error.h"
#include "server/openai/request_body.h"
#include "server/openai/tool_fields.h"

namespace fovea::openai {

/// The fields that /v1/completions and /v1/chat/completions share.
struct GenerationRequest {
  std::string model;        ///< "" = not given: the served model
  SamplingParams sampling;  ///< the request's fields over `defaults` of the parse functions
  bool max_tokens_given = false;
  std::optional<int> prompt_logprobs;
  int priority = 0;
  std::string cache_salt;  ///< GenerateRequest::cache_salt
  bool stream = false;
  bool include_usage = false;         ///< stream_options: usage in a final chunk
  bool continuous_usage = false;      ///< stream_options: usage in every chunk
  bool return_token_ids = false;      ///< vLLM: "token_ids" of choices, "prompt_token_ids"
  bool return_tokens_as_ids = false;  ///< vLLM's return_tokens_as_token_ids: "token_id:123" in logprobs
  bool echo = false;
  bool add_special_tokens = true;      ///< default: true for completions, false for chats
  std::optional<AnswerFormat> format;  ///< chats: answers are split by it
  bool include_reasoning = true;       ///< chats: the answer has the reasoning
  bool splits_reasoning = true;        ///< chats: the reasoning is no part of the content
};

/// Members of all request types.
struct RequestBase {
  std::vector<std::string> ignored;  ///< unknown fields, if those are ignored
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest : RequestBase {
  GenerationRequest common;
  std::vector<Prompt> prompts;  ///< at least one
};

struct ChatCompletionRequest : RequestBase {
  GenerationRequest common;
  ChatRequest chat;  ///< roles and contents checked, text parts joined
  ToolRequest tools;
  bool top_logprobs = false;  ///< common.sampling.logprobs is set when logprobs are requested
};

struct EmbeddingRequest : RequestBase {
  std::string model;
  std::vector<Prompt> inputs;
  bool base64 = false;            ///< encoding_format
  std::optional<int> dimensions;  ///< refused unless equal to the model's
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

/// Maximum prompts, and answers, of a request; OpenAI's limit for embedding inputs.
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

/// The fields that the parser of a path reads, beside those of field_rules(), for the docs.
struct ReadFields {
  std::string_view path;
  std::vector<std::string_view> names;  ///< sorted
};
std::vector<ReadFields> read_fields();

}  // namespace fovea::openai
