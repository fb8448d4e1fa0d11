#include "server/openai/answer_size.h"

#include <algorithm>

namespace fovea::openai {
namespace {

// In bytes, slightly above the averages for English text; the test compares them with answers.
constexpr int64_t kTokenText = 8;  // also for an id in a list
constexpr int64_t kChoice = 200;
constexpr int64_t kChatLogprob = 100;       // {"token":"x","logprob":-1.2345678,"bytes":[120]}
constexpr int64_t kCompletionLogprob = 28;  // "x":-1.2345678
constexpr int64_t kCompletionToken = 36;    // its entries in tokens, token_logprobs and text_offset
constexpr int64_t kPromptLogprob = 76;      // "123":{"logprob":-1.2345678,"rank":1,"decoded_token":"x"}

/// Counts the token itself too, although it is usually among the top ones.
int64_t entries(int wanted, int vocab_size) {
  return (wanted < 0 ? vocab_size : wanted) + 1;
}

}  // namespace

AnswerSize answer_size(ApiKind kind, const GenerationRequest& request, std::span<const int64_t> prompt_tokens,
                       int vocab_size) {
  const bool chat = kind == ApiKind::chat;
  const int64_t n = request.sampling.n, choices = n * static_cast<int64_t>(prompt_tokens.size());
  const auto& logprobs = request.sampling.logprobs;
  int64_t of_token = 0;  // bytes of log probabilities
  if (logprobs) {
    const int64_t count = entries(*logprobs, vocab_size);
    of_token = chat ? kChatLogprob * count : kCompletionToken + kCompletionLogprob * count;
  }
  AnswerSize size;
  size.per_token = kTokenText + of_token + (request.return_token_ids ? kTokenText : 0);
  int64_t of_prompt_token = 0;
  if (request.prompt_logprobs)
    of_prompt_token += kPromptLogprob * entries(*request.prompt_logprobs, vocab_size);
  if (request.return_token_ids) of_prompt_token += kTokenText;
  if (request.echo) of_prompt_token += kTokenText + of_token;
  int64_t all = 0;
  for (const int64_t tokens : prompt_tokens)
    all += tokens;
  size.prompts = kChoice * choices + of_prompt_token * all * (chat ? 1 : n);  // a chat has it once
  if (request.max_tokens_given) size.tokens = choices * std::max(0, request.sampling.max_tokens.value_or(0));
  size.param = size.per_token * size.tokens > size.prompts ? "max_tokens"
               : request.prompt_logprobs                   ? "prompt_logprobs"
               : request.echo                              ? "echo"
                                                           : "n";
  size.what = std::to_string(prompt_tokens.size()) + " prompts of " + std::to_string(all) + " tokens, n " +
              std::to_string(n);
  if (request.max_tokens_given) size.what += ", max_tokens " + std::to_string(*request.sampling.max_tokens);
  if (logprobs) size.what += ", logprobs " + std::to_string(*logprobs);
  if (request.prompt_logprobs) size.what += ", prompt_logprobs " + std::to_string(*request.prompt_logprobs);
  return size;
}

int64_t embeddings_size(size_t inputs, int dimensions, bool base64) {
  constexpr int64_t kFrame = 60, kFloat = 13, kBase64 = 6;
  return static_cast<int64_t>(inputs) * (kFrame + dimensions * (base64 ? kBase64 : kFloat));
}

}  // namespace fovea::openai
