#include "server/openai/block_writer.h"

#include <algorithm>

#include "fovea/result.h"
#include "server/openai/answer_tags.h"
#include "text/json_value.h"

namespace fovea::openai {
namespace {

using Kind = AnswerDelta::Kind;

/// Whether a part of a call continues the last block.
bool continues(const std::vector<AnswerBlock>& blocks, Kind kind) {
  return !blocks.empty() && blocks.back().kind == kind;
}

}  // namespace

void add_to_blocks(std::vector<AnswerBlock>& blocks, const AnswerDelta& parts, bool reasoning) {
  parts.visit(
      [&](Kind kind, std::string_view text) {
        if (kind == Kind::reasoning && !reasoning) return;
        if (!continues(blocks, kind)) blocks.push_back({kind, "", "", ""});
        blocks.back().text += text;
      },
      [&](const CallDelta& call) {
        if (call.first || !continues(blocks, Kind::call))
          blocks.push_back({Kind::call, "", call.id, call.name});
        blocks.back().text += call.arguments;
      });
}

AnswerDelta plain_parts(const RequestOutput& output) {
  AnswerDelta parts;
  parts.add(Kind::content, output.text);
  return parts;
}

std::string object_text(const std::string& arguments) {
  const auto parsed = text::parse_json(arguments, "arguments");
  if (!parsed || !parsed->object()) return "{}";
  std::string out;  // one line
  bool in_string = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char c = arguments[i];
    if (!in_string && is_answer_space(c)) continue;
    out += c;
    if (in_string && c == '\\')
      out += arguments[++i];
    else if (c == '"')
      in_string = !in_string;
  }
  return out;
}

AnswerEnd end_of(FinishReason finish, const std::string& stop_reason, const std::optional<int32_t>& token,
                 const SamplingParams& sampling) {
  const bool by_text = finish == FinishReason::stop && !token &&
                       std::ranges::find(sampling.stop, stop_reason) != sampling.stop.end();
  return {finish, by_text ? stop_reason : ""};
}

bool BlockWriter::has_calls(const Blocks& blocks) {
  return std::ranges::any_of(blocks, [](const AnswerBlock& block) { return block.kind == Kind::call; });
}

std::string BlockWriter::first(int, std::span<const int32_t>, const Usage& so_far) {
  std::string out;
  begin(out, so_far);
  return out;
}

std::string BlockWriter::delta(int, const AnswerDelta* given, int, const RequestOutput& output,
                               const Usage&) {
  std::string out;
  const AnswerDelta plain = given ? AnswerDelta() : plain_parts(output);
  const auto next = [&](AnswerBlock block) {
    if (!blocks_.empty()) close_block(out, blocks_.back(), blocks_.size() - 1);
    blocks_.push_back(std::move(block));
    open_block(out, blocks_.back(), blocks_.size() - 1);
  };
  const auto more = [&](std::string_view text) {
    if (text.empty()) return;
    blocks_.back().text += text;
    add_text(out, blocks_.back(), blocks_.size() - 1, text);
  };
  (given ? *given : plain)
      .visit(
          [&](Kind kind, std::string_view text) {
            if (kind == Kind::reasoning && !request_.include_reasoning) return;
            if (!continues(blocks_, kind)) next({kind, "", "", ""});
            more(text);
          },
          [&](const CallDelta& call) {
            if (call.first || !continues(blocks_, Kind::call)) next({Kind::call, "", call.id, call.name});
            more(call.arguments);
          });
  if (output.finish != FinishReason::none)
    end_ = end_of(output.finish, output.stop_reason, output.stop_token, request_.sampling);
  return out;
}

std::string BlockWriter::last(const Usage& usage) {
  std::string out;
  if (!blocks_.empty()) close_block(out, blocks_.back(), blocks_.size() - 1);
  end(out, blocks_, end_, usage);
  return out;
}

std::string BlockWriter::whole(std::span<const Choice> choices, const Usage& usage) {
  const Choice& choice = choices.front();
  return body(choice.blocks, end_of(choice.finish, choice.stop_reason, choice.stop_token, request_.sampling),
              usage);
}

}  // namespace fovea::openai
