#include "server/anthropic/writer.h"

#include <algorithm>

#include "server/openai/block_writer.h"
#include "server/openai/json_writer.h"
#include "server/openai/utc.h"

namespace fovea::anthropic {
namespace {

using openai::AnswerBlock;
using openai::AnswerEnd;
using openai::append_integer;
using openai::append_string;
using openai::Usage;
using Kind = openai::AnswerDelta::Kind;

constexpr std::string_view kPing = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

void append_usage(std::string& out, const Usage& usage, int output_tokens) {
  out += "{\"input_tokens\":";
  append_integer(out, usage.prompt_tokens - usage.cached_tokens);
  out += ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":";
  append_integer(out, usage.cached_tokens);
  out += ",\"output_tokens\":";
  append_integer(out, output_tokens);
  out += '}';
}

/// A block; `with_text`: false = as it begins in a stream.
void append_block(std::string& out, const AnswerBlock& block, bool with_text) {
  const std::string_view text = with_text ? std::string_view(block.text) : std::string_view();
  switch (block.kind) {
    case Kind::content:
      out += R"({"type":"text","text":)";
      append_string(out, text);
      break;
    case Kind::reasoning:
      out += R"({"type":"thinking","thinking":)";
      append_string(out, text);
      out += ",\"signature\":\"\"";
      break;
    case Kind::call:
      out += R"({"type":"tool_use","id":)";
      append_string(out, block.id);
      out += ",\"name\":";
      append_string(out, block.name);
      out += ",\"input\":" + (with_text ? openai::object_text(block.text) : std::string("{}"));
      break;
  }
  out += '}';
}

class MessageWriter final : public openai::BlockWriter {
 public:
  MessageWriter(const MessageHead& head, const openai::GenerationRequest& request)
      : BlockWriter(request), head_(head) {}
  std::string ping() override { return std::string(kPing); }

 private:
  void append_head(std::string& out) const {
    out += "{\"id\":";
    append_string(out, head_.id);
    out += R"(,"type":"message","role":"assistant","model":)";
    append_string(out, head_.model);
  }

  void append_stop(std::string& out, const Blocks& blocks, const AnswerEnd& end) const {
    out += "\"stop_reason\":";
    if (end.finish == FinishReason::length)
      out += head_.to_context_end ? "\"model_context_window_exceeded\"" : "\"max_tokens\"";
    else if (!end.stop.empty())
      out += "\"stop_sequence\"";
    else
      out += has_calls(blocks) ? "\"tool_use\"" : "\"end_turn\"";
    out += ",\"stop_sequence\":";
    if (end.stop.empty())
      out += "null";
    else
      append_string(out, end.stop);
  }

  void begin(std::string& out, const Usage& usage) override {
    out += "event: message_start\ndata: {\"type\":\"message_start\",\"message\":";
    append_head(out);
    out += R"(,"content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
    append_usage(out, usage, std::min(usage.completion_tokens, 1));
    out += "}}\n\n";
    out += kPing;
  }

  static void begin_event(std::string& out, std::string_view type, size_t index) {
    out += "event: ";
    out += type;
    out += "\ndata: {\"type\":\"";
    out += type;
    out += "\",\"index\":";
    append_integer(out, static_cast<int64_t>(index));
  }

  void open_block(std::string& out, const AnswerBlock& block, size_t index) override {
    begin_event(out, "content_block_start", index);
    out += ",\"content_block\":";
    append_block(out, block, false);
    out += "}\n\n";
  }

  void add_text(std::string& out, const AnswerBlock& block, size_t index, std::string_view text) override {
    begin_event(out, "content_block_delta", index);
    out += block.kind == Kind::content     ? R"(,"delta":{"type":"text_delta","text":)"
           : block.kind == Kind::reasoning ? R"(,"delta":{"type":"thinking_delta","thinking":)"
                                           : R"(,"delta":{"type":"input_json_delta","partial_json":)";
    append_string(out, text);
    out += "}}\n\n";
  }

  void close_block(std::string& out, const AnswerBlock& block, size_t index) override {
    if (block.kind == Kind::reasoning) {
      begin_event(out, "content_block_delta", index);
      out += ",\"delta\":{\"type\":\"signature_delta\",\"signature\":\"\"}}\n\n";
    }
    begin_event(out, "content_block_stop", index);
    out += "}\n\n";
  }

  void end(std::string& out, const Blocks& blocks, const AnswerEnd& end, const Usage& usage) override {
    out += "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{";
    append_stop(out, blocks, end);
    out += "},\"usage\":";
    append_usage(out, usage, usage.completion_tokens);
    out += "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  }

  std::string body(const Blocks& blocks, const AnswerEnd& end, const Usage& usage) override {
    std::string out;
    append_head(out);
    out += ",\"content\":[";
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i) out += ',';
      append_block(out, blocks[i], true);
    }
    out += "],";
    append_stop(out, blocks, end);
    out += ",\"usage\":";
    append_usage(out, usage, usage.completion_tokens);
    return out += '}';
  }

  const MessageHead head_;
};

}  // namespace

std::unique_ptr<openai::AnswerWriter> make_message_writer(const MessageHead& head,
                                                          const openai::GenerationRequest& request) {
  return std::make_unique<MessageWriter>(head, request);
}

std::string model_json(std::string_view name, int64_t created) {
  std::string out = R"({"type":"model","id":)";
  append_string(out, name);
  out += ",\"display_name\":";
  append_string(out, name);
  return out + ",\"created_at\":\"" + openai::utc_time(created) + "\"}";
}

std::string models_json(std::span<const std::string> names, int64_t created) {
  std::string out = "{\"data\":[";
  for (size_t i = 0; i < names.size(); ++i)
    out += (i ? "," : "") + model_json(names[i], created);
  out += "],\"has_more\":false,\"first_id\":";
  append_string(out, names.front());
  out += ",\"last_id\":";
  append_string(out, names.back());
  return out + "}";
}

std::string count_json(size_t tokens) {
  return "{\"input_tokens\":" + std::to_string(tokens) + "}";
}

}  // namespace fovea::anthropic
