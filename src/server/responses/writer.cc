#include "server/responses/writer.h"

#include <utility>

#include "server/openai/block_writer.h"
#include "server/openai/json_writer.h"

namespace fovea::responses {
namespace {

using openai::AnswerBlock;
using openai::AnswerEnd;
using openai::append_float;
using openai::append_integer;
using openai::append_string;
using openai::Usage;
using Kind = openai::AnswerDelta::Kind;

/// The part of an item that has its text.
void append_part(std::string& out, Kind kind, std::string_view text) {
  out += kind == Kind::reasoning ? R"({"type":"reasoning_text","text":)" : R"({"type":"output_text","text":)";
  append_string(out, text);
  out += kind == Kind::reasoning ? "}" : R"(,"annotations":[],"logprobs":[]})";
}

void append_usage(std::string& out, const Usage& usage) {
  const auto member = [&](const char* name, int64_t value) {
    out += name;
    append_integer(out, value);
  };
  member("{\"input_tokens\":", usage.prompt_tokens);
  member(",\"input_tokens_details\":{\"cached_tokens\":", usage.cached_tokens);
  member("},\"output_tokens\":", usage.completion_tokens);
  member(",\"output_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens);
  member("},\"total_tokens\":", int64_t{usage.prompt_tokens} + usage.completion_tokens);
  out += '}';
}

class ResponsesWriter final : public openai::BlockWriter {
 public:
  ResponsesWriter(ResponseHead head, Echo echo, const openai::GenerationRequest& request)
      : BlockWriter(request), head_(std::move(head)), echo_(std::move(echo)) {}

 private:
  std::string item_id(const AnswerBlock& block, size_t index) const {
    const char* prefix = block.kind == Kind::reasoning ? "rs_" : block.kind == Kind::call ? "fc_" : "msg_";
    return prefix + head_.id + "_" + std::to_string(index);
  }

  /// `status`: "in_progress" = as it begins in a stream.
  void append_item(std::string& out, const AnswerBlock& block, size_t index, std::string_view status) const {
    const bool begins = status == "in_progress";
    out += "{\"id\":";
    append_string(out, item_id(block, index));
    out += block.kind == Kind::reasoning ? ",\"type\":\"reasoning\""
           : block.kind == Kind::call    ? ",\"type\":\"function_call\""
                                         : ",\"type\":\"message\",\"role\":\"assistant\"";
    out += ",\"status\":";
    append_string(out, status);
    if (block.kind == Kind::call) {
      out += ",\"call_id\":";
      append_string(out, block.id);
      out += ",\"name\":";
      append_string(out, block.name);
      out += ",\"arguments\":";
      append_string(out, begins ? std::string_view() : block.text);
      out += '}';
      return;
    }
    out += block.kind == Kind::reasoning ? ",\"summary\":[],\"content\":[" : ",\"content\":[";
    if (!begins) append_part(out, block.kind, block.text);
    out += "]}";
  }

  /// `end`, `usage`: null = the answer is being computed.
  void append_response(std::string& out, const Blocks& blocks, const AnswerEnd* end,
                       const Usage* usage) const {
    const bool cut = end && end->finish == FinishReason::length;
    const SamplingParams& sampling = request().sampling;
    out += "{\"id\":\"resp_" + head_.id + "\",\"object\":\"response\",\"created_at\":";
    append_integer(out, head_.created);
    out += !end  ? ",\"status\":\"in_progress\""
           : cut ? ",\"status\":\"incomplete\""
                 : ",\"status\":\"completed\"";
    out += ",\"background\":false,\"error\":null,\"incomplete_details\":";
    out += cut ? R"({"reason":"max_output_tokens"})" : "null";
    out += ",\"instructions\":" + echo_.instructions + ",\"max_output_tokens\":";
    if (request().max_tokens_given)
      append_integer(out, sampling.max_tokens.value_or(0));
    else
      out += "null";
    out += ",\"model\":";
    append_string(out, head_.model);
    out += ",\"output\":[";
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i) out += ',';
      append_item(out, blocks[i], i, cut && i + 1 == blocks.size() ? "incomplete" : "completed");
    }
    out += std::string("],\"parallel_tool_calls\":") + (echo_.parallel ? "true" : "false");
    out += ",\"previous_response_id\":null,\"reasoning\":" +
           (echo_.reasoning == "null" ? R"({"effort":null,"summary":null})" : echo_.reasoning);
    out += ",\"store\":false,\"temperature\":";
    append_float(out, sampling.temperature);
    out += ",\"text\":" + echo_.text + ",\"tool_choice\":" + echo_.tool_choice + ",\"tools\":" + echo_.tools +
           ",\"top_p\":";
    append_float(out, sampling.top_p);
    out += ",\"truncation\":\"disabled\",\"metadata\":" + echo_.metadata + ",\"usage\":";
    if (usage)
      append_usage(out, *usage);
    else
      out += "null";
    out += '}';
  }

  void begin_event(std::string& out, std::string_view type) {
    out += "event: ";
    out += type;
    out += "\ndata: {\"type\":\"";
    out += type;
    out += "\",\"sequence_number\":";
    append_integer(out, sequence_++);
  }

  void begin_event(std::string& out, std::string_view type, const AnswerBlock& block, size_t index) {
    begin_event(out, type);
    out += ",\"item_id\":";
    append_string(out, item_id(block, index));
    out += ",\"output_index\":";
    append_integer(out, static_cast<int64_t>(index));
    if (block.kind != Kind::call) out += ",\"content_index\":0";
  }

  void item_event(std::string& out, std::string_view type, const AnswerBlock& block, size_t index,
                  std::string_view status) {
    begin_event(out, type);
    out += ",\"output_index\":";
    append_integer(out, static_cast<int64_t>(index));
    out += ",\"item\":";
    append_item(out, block, index, status);
    out += "}\n\n";
  }

  void part_event(std::string& out, std::string_view type, const AnswerBlock& block, size_t index,
                  std::string_view text) {
    begin_event(out, type, block, index);
    out += ",\"part\":";
    append_part(out, block.kind, text);
    out += "}\n\n";
  }

  void begin(std::string& out, const Usage&) override {
    for (const char* type : {"response.created", "response.in_progress"}) {
      begin_event(out, type);
      out += ",\"response\":";
      append_response(out, {}, nullptr, nullptr);
      out += "}\n\n";
    }
  }

  void open_block(std::string& out, const AnswerBlock& block, size_t index) override {
    item_event(out, "response.output_item.added", block, index, "in_progress");
    if (block.kind != Kind::call) part_event(out, "response.content_part.added", block, index, "");
  }

  void add_text(std::string& out, const AnswerBlock& block, size_t index, std::string_view text) override {
    begin_event(out,
                block.kind == Kind::call        ? "response.function_call_arguments.delta"
                : block.kind == Kind::reasoning ? "response.reasoning_text.delta"
                                                : "response.output_text.delta",
                block, index);
    out += ",\"delta\":";
    append_string(out, text);
    out += block.kind == Kind::content ? ",\"logprobs\":[]}\n\n" : "}\n\n";
  }

  void close_block(std::string& out, const AnswerBlock& block, size_t index) override {
    if (block.kind == Kind::call) {
      begin_event(out, "response.function_call_arguments.done", block, index);
      out += ",\"name\":";
      append_string(out, block.name);
      out += ",\"arguments\":";
    } else {
      begin_event(
          out, block.kind == Kind::reasoning ? "response.reasoning_text.done" : "response.output_text.done",
          block, index);
      out += block.kind == Kind::content ? ",\"logprobs\":[],\"text\":" : ",\"text\":";
    }
    append_string(out, block.text);
    out += "}\n\n";
    if (block.kind != Kind::call) part_event(out, "response.content_part.done", block, index, block.text);
    item_event(out, "response.output_item.done", block, index,
               known_end().finish == FinishReason::length ? "incomplete" : "completed");
  }

  void end(std::string& out, const Blocks& blocks, const AnswerEnd& end, const Usage& usage) override {
    begin_event(out, end.finish == FinishReason::length ? "response.incomplete" : "response.completed");
    out += ",\"response\":";
    append_response(out, blocks, &end, &usage);
    out += "}\n\n";
  }

  std::string body(const Blocks& blocks, const AnswerEnd& end, const Usage& usage) override {
    std::string out;
    append_response(out, blocks, &end, &usage);
    return out;
  }

  const ResponseHead head_;
  const Echo echo_;
  int64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<openai::AnswerWriter> make_responses_writer(ResponseHead head, Echo echo,
                                                            const openai::GenerationRequest& request) {
  return std::make_unique<ResponsesWriter>(std::move(head), std::move(echo), request);
}

}  // namespace fovea::responses
