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
  out += "},\"completion_tokens_details\":{\"reasoning_tokens\":";
  append_integer(out, usage.reasoning_tokens);
  out += "}}";
}

void append_calls(std::string& out, std::span<const CallDelta> calls, bool parts) {
  out += "\"tool_calls\":[";
  for (size_t i = 0; i < calls.size(); ++i) {
    const CallDelta& call = calls[i];
    out += i > 0 ? ",{" : "{";
    if (parts) {
      out += "\"index\":";
      append_integer(out, call.index);
      out += ',';
    }
    if (call.first) {
      out += "\"id\":";
      append_string(out, call.id);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      append_string(out, call.name);
      out += ",\"arguments\":";
    } else {
      out += "\"function\":{\"arguments\":";
    }
    append_string(out, call.arguments);
    out += "}}";
  }
  out += ']';
}

void append_metrics(std::string& out, const Usage& usage) {
  if (!usage.drafts) return;
  const SpeculativeCounts& c = *usage.drafts;
  out += ",\"metrics\":{\"speculative_decoding\":{\"num_spec_steps\":";
  append_integer(out, c.drafts);
  out += ",\"num_draft_tokens\":";
  append_integer(out, c.draft_tokens);
  out += ",\"num_accepted_tokens\":";
  append_integer(out, c.accepted_tokens);
  out += ",\"mean_acceptance_length\":";
  append_float(out, static_cast<float>(c.mean_acceptance_length()));
  out += ",\"draft_acceptance_rate\":";
  append_float(out, c.draft_tokens > 0
                        ? static_cast<float>(c.accepted_tokens) / static_cast<float>(c.draft_tokens)
                        : 0.0f);
  if (usage.draft_positions) {
    out += ",\"acceptance_histogram\":[";  // steps that accepted 0, 1, ... drafts
    int64_t reached = c.drafts;
    for (const int64_t accepted : c.accepted_by_position) {
      append_integer(out, reached - accepted);
      out += ',';
      reached = accepted;
    }
    append_integer(out, reached);
    out += ']';
  }
  out += "}}";
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

void append_stop_reason(std::string& out, const std::string& reason, const std::optional<int32_t>& token,
                        const SamplingParams& sampling) {
  const auto has = [](const auto& list, const auto& value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  if (token && has(sampling.stop_token_ids, *token))
    append_integer(out, *token);
  else if (!token && has(sampling.stop, reason))
    append_string(out, reason);
  else
    out += "null";
}

}  // namespace fovea::openai
