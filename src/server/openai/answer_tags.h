#pragma once
// What the parts of AnswerParser share: the tags of each format, and helpers for text.
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer_parser.h"

namespace fovea::openai {

inline constexpr std::string_view kAnswerSpace = " \t\r\n";

inline bool is_answer_space(char c) {
  return kAnswerSpace.find(c) != std::string_view::npos;
}

/// Without white space at its ends.
std::string_view without_space(std::string_view text);

/// `open` begins a section of calls in the content, or a call itself if there is no `call`.
struct AnswerParser::Tags {
  std::vector<std::string_view> open;
  std::string_view call, call_end, section_end;
  Mode after_call = Mode::header;  // after `call`, or `open` without one
  // XML: how a function, its parameters and their values are written.
  std::string_view name_end, parameter, parameter_name_end, parameter_end, function_end;
};

}  // namespace fovea::openai
