// AnswerParser: calls in Python's form, and the channels of harmony.
#include <algorithm>
#include <array>
#include <utility>

#include "server/openai/answer_tags.h"
#include "server/openai/python_literal.h"

namespace fovea::openai {

/// After the bracket: calls, each taken when it is whole.
bool AnswerParser::step_python(bool last, AnswerDelta& out) {
  if (!in_list_) {  // behind the list, Llama 4 may have a mark
    constexpr std::string_view kEnd = "<|python_end|>";
    bool may = false;
    if (begins_with(kEnd, may))
      buffer_.erase(0, kEnd.size());
    else if (may && !last)
      return false;
    mode_ = Mode::content;
    return true;
  }
  skip_space();
  if (buffer_.empty()) return false;
  if (buffer_[0] == ',') {
    buffer_.erase(0, 1);
    return true;
  }
  if (buffer_[0] == ']') {
    buffer_.erase(0, 1);
    in_list_ = false;
    return true;
  }
  const size_t length = python_call_length(buffer_);
  if (length == 0 && !last) return false;
  const auto call = read_python_call(std::string_view(buffer_).substr(0, length));
  if (!call) {
    mode_ = Mode::content;
    if (calls_ == 0) buffer_.insert(0, "[");
    return true;
  }
  begin_call(call->name, "", out);
  add_arguments(call->arguments, out);
  end_call(out);
  buffer_.erase(0, length);
  return true;
}

bool AnswerParser::step_channel(bool last, AnswerDelta& out) {
  constexpr std::string_view kMessage = "<|message|>";
  const size_t end = buffer_.find(kMessage);
  if (end == std::string::npos) {
    // An answer without any header is text.
    const bool header = buffer_.find("<|") != std::string::npos || buffer_.find("to=") != std::string::npos;
    if (!last || header || !recipient_.empty() || calls_ > 0) return false;
    out.add(AnswerDelta::Kind::content, std::exchange(buffer_, ""));
    return false;
  }
  const std::string_view head = std::string_view(buffer_).substr(0, end);
  const auto word_after = [&](std::string_view mark) {
    const size_t at = head.find(mark);
    if (at == std::string_view::npos) return std::string_view();
    const std::string_view rest = head.substr(at + mark.size());
    return rest.substr(0, rest.find_first_of(" <\n"));
  };
  const std::string_view to = word_after("to="), channel = word_after("<|channel|>");
  recipient_ = to.starts_with("functions.") ? "call" : channel == "analysis" ? "reasoning" : "content";
  if (recipient_ == "call") begin_call(std::string(to.substr(10)), "", out);
  buffer_.erase(0, end + kMessage.size());
  mode_ = Mode::message;
  return true;
}

bool AnswerParser::step_message(bool last, AnswerDelta& out) {
  static constexpr std::array<std::string_view, 4> kEnds = {"<|end|>", "<|call|>", "<|return|>", "<|start|>"};
  std::string text;
  const size_t before = buffer_.size();
  const bool ended = take_until(kEnds, last, text);
  if (recipient_ == "call")
    add_arguments(text, out);
  else if (recipient_ == "reasoning")
    out.add(AnswerDelta::Kind::reasoning, text);
  else
    out.add(AnswerDelta::Kind::content, text);
  if (ended) {
    end_call(out);
    mode_ = Mode::channel;
  }
  return ended || (buffer_.size() != before && !buffer_.empty());
}

}  // namespace fovea::openai
