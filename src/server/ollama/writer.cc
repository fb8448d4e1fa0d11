#include "server/ollama/writer.h"

#include "server/openai/block_writer.h"
#include "server/openai/json_writer.h"
#include "server/openai/utc.h"

namespace fovea::ollama {
namespace {

using openai::AnswerBlock;
using openai::AnswerEnd;
using openai::append_integer;
using openai::append_string;
using openai::Usage;
using Kind = openai::AnswerDelta::Kind;
using Clock = std::chrono::steady_clock;

std::string now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const int64_t all = std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  return openai::utc_time(all / 1'000'000'000, all % 1'000'000'000);
}

int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

std::string line_start(const OllamaHead& head) {
  std::string out = "{\"model\":";
  append_string(out, head.model);
  return out + ",\"created_at\":\"" + now() + "\"";
}

/// What a line says: parts of the answer.
struct Said {
  std::string_view content, thinking;
  std::string calls;  ///< a list's elements
};

void append_said(std::string& out, const OllamaHead& head, const Said& said) {
  out += head.generates ? ",\"response\":" : R"(,"message":{"role":"assistant","content":)";
  append_string(out, said.content);
  if (!said.thinking.empty()) {
    out += ",\"thinking\":";
    append_string(out, said.thinking);
  }
  if (!said.calls.empty()) out += ",\"tool_calls\":[" + said.calls + "]";
  if (!head.generates) out += '}';
}

void append_call(std::string& out, const AnswerBlock& block, size_t index) {
  out += "{\"id\":";
  append_string(out, block.id);
  out += ",\"function\":{\"index\":";
  append_integer(out, static_cast<int64_t>(index));
  out += ",\"name\":";
  append_string(out, block.name);
  out += ",\"arguments\":" + openai::object_text(block.text) + "}}";
}

class OllamaWriter final : public openai::BlockWriter {
 public:
  OllamaWriter(const OllamaHead& head, const openai::GenerationRequest& request)
      : BlockWriter(request), head_(head) {}
  std::string_view stream_type() const override { return "application/x-ndjson"; }
  std::string ping() override { return line({}); }

 private:
  std::string line(const Said& said) const {
    std::string out = line_start(head_);
    append_said(out, head_, said);
    return out + ",\"done\":false}\n";
  }

  std::string last_line(const Said& said, const AnswerEnd& end, const Usage& usage) const {
    std::string out = line_start(head_);
    append_said(out, head_, said);
    out += ",\"done\":true,\"done_reason\":";
    out += end.finish == FinishReason::length ? "\"length\"" : "\"stop\"";
    const auto member = [&](const char* name, int64_t value) {
      out += name;
      append_integer(out, value);
    };
    member(",\"total_duration\":",
           std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - head_.arrival).count());
    member(",\"load_duration\":", 0);
    member(",\"prompt_eval_count\":", usage.prompt_tokens);
    member(",\"prompt_eval_duration\":", nanoseconds(usage.prefill_seconds));
    member(",\"eval_count\":", usage.completion_tokens);
    member(",\"eval_duration\":", nanoseconds(usage.decode_seconds));
    return out + "}";
  }

  void begin(std::string&, const Usage&) override {}
  void open_block(std::string&, const AnswerBlock&, size_t) override {}

  void add_text(std::string& out, const AnswerBlock& block, size_t, std::string_view text) override {
    if (block.kind == Kind::content) out += line({.content = text, .thinking = {}, .calls = {}});
    if (block.kind == Kind::reasoning) out += line({.content = {}, .thinking = text, .calls = {}});
  }

  /// A call is one line, when it is whole.
  void close_block(std::string& out, const AnswerBlock& block, size_t) override {
    if (block.kind != Kind::call) return;
    Said said;
    append_call(said.calls, block, calls_++);
    out += line(said);
  }

  void end(std::string& out, const Blocks&, const AnswerEnd& end, const Usage& usage) override {
    out += last_line({}, end, usage) + "\n";
  }

  std::string body(const Blocks& blocks, const AnswerEnd& end, const Usage& usage) override {
    std::string content, thinking;
    Said said;
    size_t calls = 0;
    for (const AnswerBlock& block : blocks) {
      if (block.kind == Kind::content) content += block.text;
      if (block.kind == Kind::reasoning) thinking += block.text;
      if (block.kind != Kind::call) continue;
      if (calls > 0) said.calls += ',';
      append_call(said.calls, block, calls++);
    }
    said.content = content;
    said.thinking = thinking;
    return last_line(said, end, usage);
  }

  const OllamaHead head_;
  size_t calls_ = 0;
};

void append_details(std::string& out, const ModelFacts& facts) {
  out += R"({"parent_model":"","format":"safetensors","family":)";
  append_string(out, facts.family);
  out += ",\"families\":[";
  append_string(out, facts.family);
  out += "],\"parameter_size\":\"\",\"quantization_level\":";
  append_string(out, facts.quantization);
  out += '}';
}

}  // namespace

std::unique_ptr<openai::AnswerWriter> make_ollama_writer(const OllamaHead& head,
                                                         const openai::GenerationRequest& request) {
  return std::make_unique<OllamaWriter>(head, request);
}

std::string loaded_json(const OllamaHead& head) {
  std::string out = line_start(head);
  append_said(out, head, {});
  return out + ",\"done\":true,\"done_reason\":\"load\"}";
}

std::string models_json(std::span<const std::string> names, const ModelFacts& facts, bool running) {
  std::string out = "{\"models\":[";
  for (size_t i = 0; i < names.size(); ++i) {
    out += i ? ",{\"name\":" : "{\"name\":";
    append_string(out, names[i]);
    out += ",\"model\":";
    append_string(out, names[i]);
    out += ",\"size\":";
    append_integer(out, facts.bytes);
    out += ",\"digest\":\"\",\"details\":";
    append_details(out, facts);
    if (running) {
      out += ",\"expires_at\":\"9999-12-31T23:59:59Z\",\"context_length\":";
      append_integer(out, facts.max_seq_len);
    } else {
      out += ",\"modified_at\":\"" + openai::utc_time(facts.created) + "\"";
    }
    out += '}';
  }
  return out + "]}";
}

std::string show_json(std::string_view name, const ModelFacts& facts) {
  std::string out = R"({"modelfile":"","parameters":"","template":"","details":)";
  append_details(out, facts);
  out += ",\"model_info\":{\"general.basename\":";
  append_string(out, name);
  out += ",\"general.architecture\":";
  append_string(out, facts.family);
  out += ',';
  append_string(out, facts.family + ".context_length");
  out += ':';
  append_integer(out, facts.max_seq_len);
  out += std::string("},\"capabilities\":[") + (facts.generates ? "\"completion\"" : "\"embedding\"");
  if (facts.tools) out += ",\"tools\"";
  if (facts.thinks) out += ",\"thinking\"";
  return out + "],\"modified_at\":\"" + openai::utc_time(facts.created) + "\"}";
}

}  // namespace fovea::ollama
