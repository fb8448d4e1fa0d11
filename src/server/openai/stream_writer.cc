#include "server/openai/answer_json.h"
#include "server/openai/json_writer.h"
#include "server/openai/logprobs_json.h"
#include "server/openai/response.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

}  // namespace

StreamWriter::StreamWriter(const ResponseHead& head, const GenerationRequest& request, TokenText words)
    : kind_(head.kind), request_(request), words_(std::move(words)) {
  prefix_ = "data: {\"id\":";
  append_string(prefix_, head.id);
  prefix_ +=
      kind_ == ApiKind::chat ? ",\"object\":\"chat.completion.chunk\"" : ",\"object\":\"text_completion\"";
  prefix_ += ",\"created\":";
  append_integer(prefix_, head.created);
  prefix_ += ",\"model\":";
  append_string(prefix_, head.model);
  prefix_ += ",\"choices\":[";
}

void StreamWriter::begin(std::string& out, int choice) const {
  constexpr size_t kRest = 160;  // bytes of a short text and its JSON
  out.reserve(out.size() + prefix_.size() + kRest);
  out += prefix_;
  out += "{\"index\":";
  append_integer(out, choice);
}

void StreamWriter::append_text(std::string& out, std::string_view text) const {
  out += kind_ == ApiKind::chat ? ",\"delta\":{\"content\":" : ",\"text\":";
  append_string(out, text);
  if (kind_ == ApiKind::chat) out += '}';
}

/// `usage`: null = only the last event has it.
void StreamWriter::end(std::string& out, const Usage* usage) const {
  out += "}]";
  if (usage && request_.continuous_usage) {
    out += ",\"usage\":";
    append_usage(out, *usage);
  } else if (request_.include_usage) {
    out += ",\"usage\":null";
  }
  out += "}\n\n";
}

std::string StreamWriter::first(int choice, std::span<const int32_t> prompt_ids) {
  const bool is_chat = kind_ == ApiKind::chat;
  const bool with_ids = request_.return_token_ids && !prompt_ids.empty();
  std::string out;
  if (!is_chat && !with_ids) return out;
  begin(out, choice);
  out += is_chat ? ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}" : ",\"text\":\"\"";
  out += ",\"logprobs\":null,\"finish_reason\":null";
  if (with_ids) {
    // As vLLM: inside the choice for a completion, beside the choices for a chat.
    if (is_chat) {
      out += "}],\"prompt_token_ids\":";
      append_ids(out, prompt_ids);
      if (request_.include_usage) out += ",\"usage\":null";
      return out += "}\n\n";
    }
    out += ",\"prompt_token_ids\":";
    append_ids(out, prompt_ids);
  }
  end(out, nullptr);
  return out;
}

void StreamWriter::append_logprobs(std::string& out, int choice, const RequestOutput& output) {
  if (!request_.sampling.logprobs || output.logprobs.empty()) {
    out += "null";
    return;
  }
  if (kind_ == ApiKind::chat) {
    append_chat_logprobs(out, output.logprobs, words_);
    return;
  }
  int& offset = offset_of(choice);
  CompletionLogprobs logprobs(words_, offset);
  for (const TokenLogprobs& token : output.logprobs)
    logprobs.add(token);
  logprobs.append_to(out);
  offset = logprobs.offset();
}

int& StreamWriter::offset_of(int choice) {
  const auto at = static_cast<size_t>(choice);
  if (at >= offsets_.size()) offsets_.resize(at + 1);
  return offsets_[at];
}

/// Log probabilities and ids of an event with text.
void StreamWriter::append_rest(std::string& out, int choice, const RequestOutput& output,
                               const Usage& so_far) {
  out += ",\"logprobs\":";
  append_logprobs(out, choice, output);
  out += ",\"finish_reason\":null";
  if (request_.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, output.token_ids);
  }
  end(out, &so_far);
}

/// The event of the finish reason, if there is one.
void StreamWriter::append_end(std::string& out, int choice, bool calls, const RequestOutput& output,
                              const Usage& so_far) {
  if (output.finish != FinishReason::stop && output.finish != FinishReason::length) return;
  begin(out, choice);
  out += kind_ == ApiKind::chat ? ",\"delta\":{}" : ",\"text\":\"\"";
  out += ",\"logprobs\":null,\"finish_reason\":";
  if (calls && output.finish == FinishReason::stop)
    out += "\"tool_calls\"";
  else
    append_finish(out, output.finish);
  out += ",\"stop_reason\":";
  append_stop_reason(out, output.stop_reason, output.stop_token, request_.sampling);
  end(out, &so_far);
}

std::string StreamWriter::delta(int choice, const RequestOutput& output, const Usage& so_far) {
  std::string out;
  const bool has_ids = request_.return_token_ids && !output.token_ids.empty();
  const bool has_logprobs = request_.sampling.logprobs && !output.logprobs.empty();
  if (!output.text.empty() || has_ids || has_logprobs) {
    begin(out, choice);
    append_text(out, output.text);
    append_rest(out, choice, output, so_far);
  }
  append_end(out, choice, false, output, so_far);
  return out;
}

std::string StreamWriter::delta(int choice, const AnswerDelta& parts, int calls, const RequestOutput& output,
                                const Usage& so_far) {
  std::string out;
  const bool has_ids = request_.return_token_ids && !output.token_ids.empty();
  const bool has_logprobs = request_.sampling.logprobs && !output.logprobs.empty();
  const bool has_reasoning = !parts.reasoning.empty() && request_.include_reasoning;
  if (!parts.content.empty() || has_reasoning || !parts.calls.empty() || has_ids || has_logprobs) {
    begin(out, choice);
    out += ",\"delta\":{";
    const size_t empty = out.size();
    const auto member = [&](const char* name) {
      if (out.size() > empty) out += ',';
      out += name;
    };
    if (has_reasoning)
      for (const char* name : {"\"reasoning\":", "\"reasoning_content\":"}) {
        member(name);
        append_string(out, parts.reasoning);
      }
    if (!parts.content.empty() || (parts.calls.empty() && !has_reasoning)) {
      member("\"content\":");
      append_string(out, parts.content);
    }
    if (!parts.calls.empty()) {
      member("");
      append_calls(out, parts.calls, true);
    }
    out += '}';
    append_rest(out, choice, output, so_far);
  }
  append_end(out, choice, calls > 0, output, so_far);
  return out;
}

std::string StreamWriter::echo(int choice, std::string_view prompt) {
  offset_of(choice) += static_cast<int>(text::count_code_points(prompt));
  std::string out;
  begin(out, choice);
  append_text(out, prompt);
  out += ",\"logprobs\":null,\"finish_reason\":null";
  end(out, nullptr);
  return out;
}

std::string StreamWriter::last(const Usage& usage) {
  std::string out;
  if (request_.include_usage) {
    out = prefix_;
    out += "],\"usage\":";
    append_usage(out, usage);
    append_metrics(out, usage);
    out += "}\n\n";
  }
  return out += kDone;
}

std::string StreamWriter::error(const ApiError& error) {
  std::string out = "data: " + error_json(error) + "\n\n";
  return out += kDone;
}

}  // namespace fovea::openai
