#pragma once
// JSON members shared by complete answers and stream chunks.
#include <optional>

#include "server/openai/response.h"

namespace fovea::openai {

/// {"prompt_tokens", "completion_tokens", "total_tokens", ...}
void append_usage(std::string& out, const Usage& usage);

/// ,"metrics":{"speculative_decoding":{...}} beside "usage", as vLLM; nothing without Usage::drafts.
void append_metrics(std::string& out, const Usage& usage);

/// "stop", "length", or null for FinishReason::none; "abort" and "error" (vLLM's) for the others.
/// "tool_calls":[...]; parts of calls have their index.
void append_calls(std::string& out, std::span<const CallDelta> calls, bool parts);
void append_finish(std::string& out, FinishReason finish);

/// As vLLM: the stop string, the id of one of stop_token_ids, or null for the model's end-of-sequence.
void append_stop_reason(std::string& out, const std::string& reason, const std::optional<int32_t>& token,
                        const SamplingParams& sampling);

}  // namespace fovea::openai
