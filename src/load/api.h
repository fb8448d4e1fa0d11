#pragma once
// The part of the OpenAI API that a load generator needs. Only api.cc includes the JSON library.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::load {

enum class Backend { openai, openai_chat };  ///< /v1/completions, /v1/chat/completions

/// The prompt of one request: `ids` if not empty, otherwise `text`.
struct Prompt {
  std::vector<int32_t> ids;
  std::string text;
  int tokens = 0;         ///< prompt tokens, as far as known here
  int output_tokens = 1;  ///< number of tokens to request
};

/// Options shared by all requests.
struct RequestOptions {
  Backend backend = Backend::openai;
  std::string model;
  double temperature = 0;
  bool ignore_eos = false;
  std::string extra_body;  ///< members of a JSON object, ",\"a\":1", from parse_extra_body()
};

/// A JSON object's members in a form to append to others; "" for "".
Result<std::string> parse_extra_body(std::string_view json);
/// The body of a streamed request.
std::string request_body(const RequestOptions& options, const Prompt& prompt);

/// One event of a streamed answer.
struct StreamEvent {
  bool has_token = false;  ///< the text may be empty (a special token, part of a character)
  std::string text;
  bool finished = false;  ///< has a finish_reason
  std::optional<int64_t> prompt_tokens, completion_tokens;
};
/// `type`: the event's type; "error" is an error whatever its data. The Error has an error event's message.
Result<StreamEvent> parse_stream_event(std::string_view type, std::string_view data);
inline constexpr std::string_view kDone = "[DONE]";

/// The model names in the response of /v1/models.
Result<std::vector<std::string>> parse_models(std::string_view json);
std::string tokenize_body(std::string_view model, std::string_view text);
/// The ids in the response of /tokenize.
Result<std::vector<int32_t>> parse_tokens(std::string_view json);
/// One line: the "message" of an error body, otherwise the start of the body.
std::string error_message(int status, std::string_view body);

}  // namespace fovea::load
