#pragma once
// An answer with reasoning, text and calls, cut into outputs in many ways, as a writer streams it.
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "server/openai/block_writer.h"

namespace fovea::openai {

inline AnswerFormat cut_format() {
  AnswerFormat format;
  format.tools = ToolFormat::hermes;
  format.think_begin = "<think>";
  format.think_end = "</think>";
  return format;
}

inline const std::string kCutAnswer =
    "<think>hm</think>\n\nI \xC3\xA9 look.<tool_call>{\"name\": \"ls\", \"arguments\": {\"p\": "
    "\"a\\nb\"}}</tool_call>"
    "<tool_call>{\"name\": \"pwd\", \"arguments\": {}}</tool_call> after";

inline const Usage kCutUsage = {.prompt_tokens = 7, .completion_tokens = 5, .cached_tokens = 4};

/// The stream of outputs that end at `cuts`.
inline std::string stream_of(AnswerWriter& writer, const std::vector<size_t>& cuts,
                             FinishReason finish = FinishReason::stop) {
  AnswerParser parser(cut_format(), [] { return "id"; });
  std::string out = writer.first(0, {}, {.prompt_tokens = 7, .cached_tokens = 4});
  size_t at = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const bool last = i == cuts.size();
    const size_t end = last ? kCutAnswer.size() : cuts[i];
    RequestOutput output;
    output.text = kCutAnswer.substr(at, end - at);
    if (last) output.finish = finish;
    at = end;
    AnswerDelta parts;
    parser.push(output.text, parts);
    if (last) parser.finish(parts);
    out += writer.delta(0, &parts, parser.calls(), output, {});
  }
  return out + writer.last(kCutUsage);
}

/// The same answer, not streamed.
inline std::string whole_of(AnswerWriter& writer, FinishReason finish = FinishReason::stop) {
  AnswerParser parser(cut_format(), [] { return "id"; });
  AnswerDelta parts;
  parser.push(kCutAnswer, parts);
  parser.finish(parts);
  Choice choice;
  choice.finish = finish;
  add_to_blocks(choice.blocks, parts, true);
  return writer.whole(std::span(&choice, 1), kCutUsage);
}

/// All single cuts, one byte at a time, and random cuts; between characters, as the engine's outputs are.
inline void for_each_cut(const std::function<void(const std::vector<size_t>&)>& check) {
  const auto inside = [](size_t at) {
    return at < kCutAnswer.size() && (static_cast<uint8_t>(kCutAnswer[at]) & 0xC0) == 0x80;
  };
  for (size_t cut = 0; cut <= kCutAnswer.size(); ++cut)
    if (!inside(cut)) check({cut});
  std::mt19937 random(5);
  for (int times = 0; times < 60; ++times) {
    std::vector<size_t> cuts;
    const size_t longest = times == 0 ? 1 : 1 + random() % 9;
    for (size_t at = 0; (at += 1 + random() % longest) < kCutAnswer.size();)
      if (!inside(at)) cuts.push_back(at);
    check(cuts);
  }
}

}  // namespace fovea::openai
