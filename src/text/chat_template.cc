#include "text/chat_template.h"

#include <algorithm>

#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea {

using namespace text;

struct ChatTemplate::Impl {
  std::string source;
  jinja::Block program;

  Error describe(const jinja::Failure& failure) const;
  Result<std::string> render(const jinja::Dict& variables) const;
};

// Line and column, from 1, columns in characters.
Error ChatTemplate::Impl::describe(const jinja::Failure& failure) const {
  const size_t at = std::min(static_cast<size_t>(std::max<int64_t>(failure.offset, 0)), source.size());
  const std::string_view before = std::string_view(source).substr(0, at);
  const size_t newline = before.rfind('\n');
  const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  std::string message = to_valid_utf8(failure.message);  // a shortened name may end inside a character
  std::replace(message.begin(), message.end(), '\n', ' ');
  return invalid("chat template, line " + std::to_string(line) + ", column " +
                 std::to_string(count_code_points(before.substr(line_start)) + 1) + ": " + message);
}

Result<std::string> ChatTemplate::Impl::render(const jinja::Dict& variables) const {
  try {
    return jinja::render(program, variables);
  } catch (const jinja::Failure& failure) {
    return describe(failure);
  }
}

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source) {
  std::unique_ptr<ChatTemplate> out(new ChatTemplate());
  out->impl_->source = jinja::normalize_source(source);
  try {
    out->impl_->program = jinja::parse_template(out->impl_->source);
  } catch (const jinja::Failure& failure) {
    return out->impl_->describe(failure);
  }
  return out;
}

namespace {

Result<jinja::Dict> variables_of(std::string_view json) {
  FOVEA_TRY(parsed, parse_json(json, "template variables"));
  if (!parsed.object()) return invalid("template variables must be a JSON object, not " + parsed.describe());
  jinja::Dict variables;
  for (const auto& [name, value] : *parsed.object()) {
    variables.set(jinja::Value::string(to_valid_utf8(name)), jinja::from_json(value));
  }
  return variables;
}

}  // namespace

Result<std::string> ChatTemplate::render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                         std::string_view variables_json) const {
  FOVEA_TRY(variables, variables_of(variables_json));
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    jinja::Dict entry;
    entry.set(jinja::Value::string("role"), jinja::Value::string(to_valid_utf8(message.role)));
    entry.set(jinja::Value::string("content"), jinja::Value::string(to_valid_utf8(message.content)));
    list.push_back(jinja::Value::dict(std::move(entry)));
  }
  variables.set(jinja::Value::string("messages"), jinja::Value::list(std::move(list)));
  variables.set(jinja::Value::string("add_generation_prompt"), jinja::Value::boolean(add_generation_prompt));
  return impl_->render(variables);
}

Result<std::string> ChatTemplate::render_json(std::string_view variables_json) const {
  FOVEA_TRY(variables, variables_of(variables_json));
  return impl_->render(variables);
}

}  // namespace fovea
