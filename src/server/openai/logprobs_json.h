#pragma once
// Log probabilities in three formats: OpenAI chats, OpenAI completions, and vLLM's prompt_logprobs.
#include <span>
#include <string>

#include "server/openai/response.h"

namespace fovea::openai {

/// A log probability; as in vLLM, -infinity, NaN and values below -9999 become -9999.0.
void append_logprob(std::string& out, float logprob);

/// {"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}], "refusal":
/// null}
void append_chat_logprobs(std::string& out, std::span<const TokenLogprobs> tokens, const TokenText& words);

/// Builds {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of completions, token by token.
class CompletionLogprobs {
 public:
  /// `offset`: characters of the text before the first token.
  CompletionLogprobs(const TokenText& words, int offset) : words_(words), offset_(offset) {}

  void add(const TokenLogprobs& token);
  /// The first token of a prompt, which has no log probability.
  void add_first(int32_t id);
  void append_to(std::string& out) const;
  /// Characters before the next token.
  int offset() const { return offset_; }

 private:
  void add_text(int32_t id);

  const TokenText& words_;
  int offset_;
  std::string tokens_, logprobs_, top_, offsets_;
};

/// [null, {"ID": {"logprob", "rank", "decoded_token"}, ...}, ...] for `ids`; `tokens` correspond to ids[1..].
/// Each object begins with the prompt's own token.
void append_prompt_logprobs(std::string& out, std::span<const int32_t> ids,
                            std::span<const TokenLogprobs> tokens, const TokenText& words);

}  // namespace fovea::openai
