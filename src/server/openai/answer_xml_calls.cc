// AnswerParser: calls whose parameters have tags of their own.
#include <algorithm>
#include <array>
#include <utility>

#include "fovea/result.h"
#include "server/openai/answer_tags.h"
#include "server/openai/json_writer.h"
#include "server/openai/python_literal.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

std::string as_json(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

}  // namespace

/// XML: after the tag of a function, its name and what follows up to a parameter or its end.
bool AnswerParser::step_function(AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
  const bool glm = format_.tools == ToolFormat::glm4;
  if (!begun_) {
    std::string name;
    if (glm) {  // the name ends where the first argument or the call's end begins
      const size_t end = std::min(buffer_.find("<arg_key>"), buffer_.find("</tool_call>"));
      if (end == std::string::npos) return false;
      name = buffer_.substr(0, end);
      buffer_.erase(0, end);
    } else {
      const size_t end = buffer_.find(tags.name_end);
      if (end == std::string::npos) return false;
      name = buffer_.substr(0, end);
      buffer_.erase(0, end + tags.name_end.size());
    }
    begin_call(std::string(without_space(name)), "", out);
    return true;
  }
  skip_space();
  bool may = false;
  if (begins_with(tags.parameter, may)) {
    buffer_.erase(0, tags.parameter.size());
    mode_ = Mode::parameter;
    return true;
  }
  if (begins_with(tags.function_end, may)) {
    buffer_.erase(0, tags.function_end.size());
    add_arguments(any_parameter_ ? "}" : "{}", out);
    end_call(out);
    mode_ = Mode::between;
    return true;
  }
  if (may || buffer_.empty()) return false;
  buffer_.erase(0, 1);  // nothing that belongs here
  return true;
}

bool AnswerParser::step_parameter() {
  const Tags& tags = tags_of(format_.tools);
  const size_t end = buffer_.find(tags.parameter_name_end);
  if (end == std::string::npos) return false;
  std::string_view head = std::string_view(buffer_).substr(0, end);
  size_t consumed = end + tags.parameter_name_end.size();
  as_string_ = false;
  if (format_.tools == ToolFormat::deepseek_v32) {  // NAME" string="true"
    as_string_ = head.find("string=\"true\"") != std::string_view::npos;
    head = head.substr(0, head.find('"'));
  }
  if (format_.tools == ToolFormat::glm4) {
    const std::string_view value = "<arg_value>";
    const size_t at = buffer_.find(value, consumed);
    if (at == std::string::npos) return false;
    key_ = without_space(head);
    consumed = at + value.size();
  } else {
    key_ = without_space(head);
  }
  buffer_.erase(0, consumed);
  mode_ = Mode::value;
  return true;
}

/// The types that the tool's schema has for the value, joined by blanks.
std::string AnswerParser::value_types() const {
  if (const auto tool = format_.types.find(name_); tool != format_.types.end())
    if (const auto found = tool->second.find(key_); found != tool->second.end()) return found->second;
  return "";
}

/// A value as JSON, if it is not streamed: what it says, if the schema allows that type, else a string, if it
/// allows that.
std::string AnswerParser::typed(const std::string& value) const {
  const std::string types = " " + value_types() + " ";
  std::string text(without_space(value));
  const auto allows = [&](std::string_view type) {
    return types.find(" " + std::string(type) + " ") != std::string::npos;
  };
  if (const auto parsed = text::parse_json(text, "value")) {
    const bool number = parsed->integer() || parsed->real();
    const bool fits = parsed->is_null()   ? allows("null")
                      : parsed->boolean() ? allows("boolean")
                      : parsed->array()   ? allows("array")
                      : parsed->object()  ? allows("object")
                      : number            ? allows("number") || (parsed->integer() && allows("integer"))
                                          : allows("string");
    if (fits || !allows("string")) return text;
    return as_json(value);
  }
  if (text == "True" || text == "False") {
    if (allows("boolean") || !allows("string")) return text == "True" ? "true" : "false";
  } else if (text == "None") {
    if (allows("null") || !allows("string")) return "null";
  } else if (allows("array") || allows("object")) {  // as Python writes it
    constexpr std::string_view kBegin = "{\"v\": ";
    if (const auto call = read_python_call("f(v=" + text + ")"); call && call->arguments.starts_with(kBegin))
      return call->arguments.substr(kBegin.size(), call->arguments.size() - kBegin.size() - 1);
  }
  return as_json(value);
}

bool AnswerParser::step_value(bool last, AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
  const std::string types = value_types();
  const bool raw = format_.tools == ToolFormat::deepseek_v32;
  if (as_string_ || (!raw && (types.empty() || types == "string"))) {
    std::string text;
    const std::array<std::string_view, 1> ends{tags.parameter_end};
    const size_t before = buffer_.size();
    const bool ended = take_until(ends, last, text);
    add_string(text, ended, out);
    return ended || buffer_.size() != before;
  }
  const size_t end = buffer_.find(tags.parameter_end);
  if (end == std::string::npos) return false;
  std::string value = buffer_.substr(0, end);
  buffer_.erase(0, end + tags.parameter_end.size());
  if (format_.tools == ToolFormat::qwen3_coder) {  // a line of its own
    if (value.starts_with("\n")) value.erase(0, 1);
    if (value.ends_with("\n")) value.pop_back();
  }
  add_arguments((any_parameter_ ? ", " : "{") + as_json(key_) + ": " + typed(value), out);
  any_parameter_ = true;
  mode_ = Mode::function;
  return true;
}

/// Strings are given on as they come. raw_: what is held back, part of a character or, in qwen3_coder, where
/// the value has a line of its own, the line ends around it.
void AnswerParser::add_string(std::string_view text, bool ended, AnswerDelta& out) {
  raw_ += text;
  const bool own_line = format_.tools == ToolFormat::qwen3_coder;
  if (own_line && !started_ && raw_.starts_with("\n")) raw_.erase(0, 1);
  started_ = started_ || !text.empty();
  std::string ready;
  raw_.erase(0, text::append_complete_utf8(raw_, ready));
  if (ended) ready += std::exchange(raw_, "");
  if (own_line && ready.ends_with("\n")) {
    ready.pop_back();
    if (!ended) raw_.insert(0, "\n");
  }
  if (!begun_value_ && (ended || !ready.empty())) {
    add_arguments((any_parameter_ ? ", " : "{") + as_json(key_) + ": \"", out);
    begun_value_ = any_parameter_ = true;
  }
  if (!ready.empty()) {
    const std::string quoted = as_json(ready);
    add_arguments(std::string_view(quoted).substr(1, quoted.size() - 2), out);
  }
  if (!ended) return;
  add_arguments("\"", out);
  begun_value_ = started_ = false;
  mode_ = Mode::function;
}

}  // namespace fovea::openai
