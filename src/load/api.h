#pragma once
// The words of the OpenAI API that a load generator needs. The JSON library stays inside api.cc.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"

namespace fovea::load {

enum class Backend { openai, openai_chat };  ///< /v1/completions, /v1/chat/completions

/// What one request asks for: `ids` if there are any, else `text`.
struct Prompt {
  std::vector<int32_t> ids;
  std::string text;
  int tokens = 0;         ///< of the prompt, as far as known here
  int output_tokens = 1;  ///< to ask for
};

/// What all requests share.
struct RequestOptions {
  Backend backend = Backend::openai;
  std::string model;
  double temperature = 0;
  bool ignore_eos = false;
  std::string extra_body;  ///< members of a JSON object, ",\"a\":1": of parse_extra_body()
};

/// A JSON object's members, to stand after others; "" for "".
Result<std::string> parse_extra_body(std::string_view json);
/// The body of a streamed request.
std::string request_body(const RequestOptions& options, const Prompt& prompt);

/// One event of a streamed answer.
struct StreamEvent {
  bool has_token = false;  ///< also one whose text is empty (a special token, a part of a character)
  std::string text;
  bool finished = false;  ///< it has a finish_reason
  std::optional<int64_t> prompt_tokens, completion_tokens;
};
/// `type`: of the event; "error" is one whatever its data. An error event's message is the error.
Result<StreamEvent> parse_stream_event(std::string_view type, std::string_view data);
inline constexpr std::string_view kDone = "[DONE]";

/// The names of /v1/models' answer.
Result<std::vector<std::string>> parse_models(std::string_view json);
std::string tokenize_body(std::string_view model, std::string_view text);
/// The ids of /tokenize's answer.
Result<std::vector<int32_t>> parse_tokens(std::string_view json);
/// One line: the "message" of an error's body, else its beginning.
std::string error_message(int status, std::string_view body);

}  // namespace fovea::load
