#pragma once
// Response bodies and server-sent events of the OpenAI API, as text. Pure functions of the engine's outputs.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/engine.h"
#include "server/openai/request.h"

namespace fovea::openai {

enum class ApiKind { completion, chat };

/// The members that are the same in every chunk of an answer.
struct ResponseHead {
  ApiKind kind = ApiKind::chat;
  std::string id;     ///< "chatcmpl-...", "cmpl-..."
  std::string model;  ///< the served name
  int64_t created = 0;
};

struct Usage {
  int prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0, reasoning_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  ///< RequestOutput's, of the last answer that ended
  /// How drafts fared, if that is reported; by place with `draft_positions`.
  std::optional<SpeculativeCounts> drafts = {};
  bool draft_positions = false;
};

/// The text of tokens, for logprobs.
struct TokenText {
  std::function<std::string(int32_t)> bytes;  ///< Engine::token_bytes
  bool as_ids = false;                        ///< "token_id:123" instead of text
};

/// A part of an answer, for APIs that keep their order.
struct AnswerBlock {
  AnswerDelta::Kind kind = AnswerDelta::Kind::content;
  std::string text;      ///< a call's arguments
  std::string id, name;  ///< of a call
};

/// One choice of a complete answer.
struct Choice {
  int index = 0;
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;
  bool wants_logprobs = false;
  FinishReason finish = FinishReason::none;
  std::string stop_reason;                     ///< RequestOutput's
  std::optional<int32_t> stop_token;           ///< RequestOutput's
  int text_offset = 0;                         ///< completions: characters of the echoed prompt
  std::vector<int32_t> prompt_ids;             ///< with return_token_ids, prompt_logprobs or `echoed`
  std::vector<TokenLogprobs> prompt_logprobs;  ///< for prompt_ids[1..]
  std::string reasoning;                       ///< chats
  std::vector<CallDelta> calls;                ///< chats: whole calls
  bool ends_in_call = false;                   ///< the last of them is not whole
  std::vector<AnswerBlock> blocks;             ///< AnswerWriter::wants_blocks(): instead of these
  bool echoed = false;  ///< completions with echo and logprobs: prompt_logprobs come first in "logprobs"
};

std::string response_json(const ResponseHead& head, std::span<const Choice> choices, const Usage& usage,
                          const GenerationRequest& request, const TokenText& words);

/// Writes the events of one stream, each "data: {...}\n\n". One writer for each request; `choice` indices run
/// over all prompts. Not thread-safe.
class StreamWriter {
 public:
  StreamWriter(const ResponseHead& head, const GenerationRequest& request, TokenText words);
  /// The first event of a choice. For a chat it has the role; for completions it is "" except with
  /// return_token_ids, where it has `prompt_ids` (for a chat with n choices, pass them with the first only).
  std::string first(int choice, std::span<const int32_t> prompt_ids = {});
  /// The event for an output of a choice; "" when it has nothing to report. The finish reason, stop or
  /// length, is in a separate event after the text; for cancelled and error there is none, and error()
  /// follows.
  std::string delta(int choice, const RequestOutput& output, const Usage& so_far);
  /// The same for an answer that is split: `parts` is what the output adds. `calls`: of the answer so far.
  std::string delta(int choice, const AnswerDelta& parts, int calls, const RequestOutput& output,
                    const Usage& so_far);
  /// Completions with echo: the prompt as the first text of a choice.
  std::string echo(int choice, std::string_view text);
  /// The usage event, if requested, and "data: [DONE]\n\n".
  std::string last(const Usage& usage);
  /// An error after the head was sent, then [DONE].
  static std::string error(const ApiError& error);

 private:
  void begin(std::string& out, int choice) const;
  void append_text(std::string& out, std::string_view text) const;
  void append_logprobs(std::string& out, int choice, const RequestOutput& output);
  void append_rest(std::string& out, int choice, const RequestOutput& output, const Usage& so_far);
  void append_end(std::string& out, int choice, bool calls, const RequestOutput& output, const Usage& so_far);
  void end(std::string& out, const Usage* usage) const;
  int& offset_of(int choice);

  ApiKind kind_;
  std::string prefix_;  // the start of every event, up to its choices
  GenerationRequest request_;
  TokenText words_;
  std::vector<int> offsets_;  // completions' text_offset of each choice, in characters
};

/// {"object": "list", ...} of /v1/embeddings; vectors of equal length.
std::string embeddings_json(std::string_view model, std::span<const std::vector<float>> vectors, bool base64,
                            int prompt_tokens);
/// An entry of /v1/models.
struct ModelCard {
  std::string name;
  int64_t created = 0;
  std::string parent;  ///< of a LoRA adapter: the model's name; "" = none
};
std::string models_json(std::span<const ModelCard> models, int max_model_len);
std::string model_json(const ModelCard& model, int max_model_len);
/// {"count", "max_model_len", "tokens", "token_strs"}; the last is null without `words`.
std::string tokenize_json(std::span<const int32_t> ids, int max_model_len, const TokenText* words);
/// {"prompt": text}
std::string detokenize_json(std::string_view text);

}  // namespace fovea::openai
