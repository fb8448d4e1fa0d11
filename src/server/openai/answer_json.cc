#include "server/openai/answer_json.h"

#include <algorithm>

#include "server/openai/json_writer.h"

namespace fovea::openai {

void append_usage(std::string& out, const Usage& usage) {
  out += "{\"prompt_tokens\":";
  append_integer(out, usage.prompt_tokens);
  out += ",\"completion_tokens\":";
  append_integer(out, usage.completion_tokens);
  out += ",\"total_tokens\":";
  append_integer(out, int64_t{usage.prompt_tokens} + usage.completion_tokens);
  out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
  append_integer(out, usage.cached_tokens);
  // Reasoning is not told from the rest of an answer.
  out += "},\"completion_tokens_details\":{\"reasoning_tokens\":0}}";
}

void append_finish(std::string& out, FinishReason finish) {
  switch (finish) {
    case FinishReason::none: out += "null"; return;
    case FinishReason::stop: out += "\"stop\""; return;
    case FinishReason::length: out += "\"length\""; return;
    case FinishReason::cancelled: out += "\"abort\""; return;
    case FinishReason::error: out += "\"error\""; return;
  }
}

void append_stop_reason(std::string& out, const std::string& reason, const SamplingParams& sampling,
                        const TokenText& words) {
  const auto& texts = sampling.stop;
  if (!reason.empty() && std::find(texts.begin(), texts.end(), reason) != texts.end()) {
    append_string(out, reason);
    return;
  }
  // The engine names an end token by its text, or by its number where it has none.
  const auto& ids = sampling.stop_token_ids;
  const auto ended = std::find_if(ids.begin(), ids.end(), [&](int32_t id) {
    return !reason.empty() && (words.bytes(id) == reason || std::to_string(id) == reason);
  });
  if (ended == ids.end())
    out += "null";
  else
    append_integer(out, *ended);
}

}  // namespace fovea::openai
