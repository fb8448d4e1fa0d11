// AnswerParser: calls whose parameters have tags of their own.
#include <algorithm>

#include "fovea/result.h"
#include "server/openai/answer_tags.h"
#include "server/openai/json_writer.h"
#include "text/json_value.h"

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

/// A value as JSON, by the type that the tool's schema has for it.
std::string AnswerParser::typed(const std::string& value) const {
  if (as_string_) return as_json(value);
  std::string types;
  if (const auto tool = format_.types.find(name_); tool != format_.types.end())
    if (const auto found = tool->second.find(key_); found != tool->second.end()) types = found->second;
  const bool raw = format_.tools == ToolFormat::deepseek_v32;
  if (!raw && (types.empty() || types == "string")) return as_json(value);
  const std::string text(without_space(value));
  const auto parsed = text::parse_json(text, "value");
  if (parsed &&
      !(parsed->string() == nullptr && types.find("string") != std::string::npos && parsed->integer()))
    return text;
  if (text == "True" || text == "False") return text == "True" ? "true" : "false";
  if (text == "None") return "null";
  return as_json(value);
}

bool AnswerParser::step_value(AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
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

}  // namespace fovea::openai
