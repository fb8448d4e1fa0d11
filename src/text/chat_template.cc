#include "text/chat_template.h"

#include <algorithm>

#include "fovea/result.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea {

using namespace text;

struct ChatTemplate::Impl {
  std::string name, source;
  jinja::Block program;

  Error describe(const jinja::Failure& failure) const;
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
  return invalid(name + ", line " + std::to_string(line) + ", column " +
                 std::to_string(count_code_points(before.substr(line_start)) + 1) + ": " + message);
}

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::parse(std::string_view source, std::string name) {
  std::unique_ptr<ChatTemplate> out(new ChatTemplate());
  out->impl_->name = std::move(name);
  out->impl_->source = jinja::normalize_source(source);
  try {
    out->impl_->program = jinja::parse_template(out->impl_->source);
  } catch (const jinja::Failure& failure) {
    return out->impl_->describe(failure);
  }
  return out;
}

Result<std::string> ChatTemplate::render(const Json& variables) const {
  if (!variables.object())
    return invalid("template variables must be a JSON object, not " + variables.describe());
  jinja::Dict values;
  for (const auto& [name, value] : *variables.object())
    values.set(jinja::Value::string(to_valid_utf8(name)), jinja::from_json(value));
  try {
    return jinja::render(impl_->program, values);
  } catch (const jinja::Failure& failure) {
    return impl_->describe(failure);
  }
}

Result<std::string> ChatTemplate::render_json(std::string_view variables) const {
  FOVEA_TRY(parsed, parse_json(variables, "template variables"));
  return render(parsed);
}

}  // namespace fovea
