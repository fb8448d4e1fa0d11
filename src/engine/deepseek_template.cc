#include "engine/deepseek_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "fovea/result.h"

namespace fovea {
namespace {

constexpr std::string_view kTokens = R"({%- set dsml = "｜DSML｜" -%}
{%- set think = "<think>" -%}
{%- set answer = "</think>" -%}
{%- set thinks = (thinking is defined and thinking) or (enable_thinking is defined and enable_thinking) -%}
)";

constexpr std::string_view kRules = R"({%- macro text_of(content) -%}
  {%- if content is string -%}{{ content }}
  {%- elif content is iterable -%}
    {%- for part in content -%}{{ part.text if part.text is defined else "" }}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- macro sections(tools, response_format) -%}
  {%- if tools -%}
    {%- set list = namespace(text="") -%}
    {%- for tool in tools -%}
      {%- set function = tool.function if tool.function is defined else tool -%}
      {%- set list.text = list.text ~ ("" if loop.first else "\n") ~ (function | tojson) -%}
    {%- endfor -%}
    {{ "\n\n" ~ tools_section(list.text) }}
  {%- endif -%}
  {%- if response_format -%}{{ "\n\n" ~ format_section(response_format | tojson) }}{%- endif -%}
{%- endmacro -%}
{%- macro call_of(function) -%}
  {%- if function.arguments is not mapping -%}
    {{ raise_exception("arguments of the call of " ~ function.name ~ " must be an object") }}
  {%- endif -%}
  {{ "<" ~ dsml ~ 'invoke name="' ~ function.name ~ '">\n' }}
  {%- for key, value in function.arguments.items() -%}
    {{ "" if loop.first else "\n" }}
    {{- "<" ~ dsml ~ 'parameter name="' ~ key ~ '" string="' ~ ("true" if value is string else "false") ~ '">' }}
    {{- value if value is string else value | tojson }}{{ "</" ~ dsml ~ "parameter>" }}
  {%- endfor -%}
  {{ "\n</" ~ dsml ~ "invoke>" }}
{%- endmacro -%}
{%- set state = namespace(last=-1, calls=0, results=0) -%}
{%- for message in messages -%}
  {%- if message.role in ["user", "developer"] -%}{%- set state.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{{ bos_token if bos_token is defined else "<｜begin▁of▁sentence｜>" }}
{%- if messages[0].role != "system" -%}{{ sections(tools, none) }}{%- endif -%}
{%- for message in messages -%}
  {%- set content = text_of(message.content) -%}
  {%- set turn = think if thinks and loop.index0 >= state.last else answer -%}
  {%- if message.role == "system" -%}
    {{ content ~ sections(message.tools or (tools if loop.first else none), message.response_format) }}
  {%- elif message.role in ["user", "developer"] -%}
    {{ "<｜User｜>" }}
    {%- if message.role == "developer" -%}
      {{ sections(message.tools, message.response_format) ~ "\n\n# The user's message is: " }}
    {%- endif -%}
    {{ content }}
    {%- if add_generation_prompt or not loop.last -%}{{ "<｜Assistant｜>" ~ turn }}{%- endif -%}
  {%- elif message.role == "assistant" -%}
    {%- if thinks and loop.index0 > state.last -%}
      {{ (message.reasoning or message.reasoning_content or "") ~ answer }}
    {%- endif -%}
    {{ content }}
    {%- set state.calls = message.tool_calls | length if message.tool_calls else 0 -%}
    {%- set state.results = 0 -%}
    {%- for call in message.tool_calls or [] -%}
      {{ "\n\n<" ~ dsml ~ "function_calls>" if loop.first else "" }}{{ "\n" }}
      {{- call_of(call.function if call.function is defined else call) }}
      {{- "\n</" ~ dsml ~ "function_calls>" if loop.last else "" }}
    {%- endfor -%}
    {{ "<｜end▁of▁sentence｜>" }}
  {%- elif message.role == "tool" -%}
    {%- set state.results = state.results + 1 -%}
    {%- if state.results > state.calls -%}
      {{ raise_exception("a tool message answers no call of the assistant message before it") }}
    {%- endif -%}
    {{ "\n\n<function_results>" if state.results == 1 else "" }}{{ "\n<result>" ~ content ~ "</result>" }}
    {%- if loop.last or loop.nextitem.role != "tool" -%}
      {{ "\n</function_results>" }}
      {%- if add_generation_prompt or not loop.last -%}{{ "\n\n" ~ turn }}{%- endif -%}
    {%- endif -%}
  {%- else -%}
    {{ raise_exception("the role " ~ message.role ~ " is not one of system, developer, user, assistant, tool") }}
  {%- endif -%}
{%- endfor -%})";

/// A Python string literal without prefix at the beginning of `source`, decoded. Escapes beyond \n, \t, \\,
/// \" and \' are none that the encoder uses.
std::optional<std::string> python_string(std::string_view source) {
  const size_t begin = source.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  source.remove_prefix(begin);
  const char mark = source.front();
  if (mark != '"' && mark != '\'') return {};
  const std::string_view quote = source.substr(0, source.starts_with(std::string(3, mark)) ? 3 : 1);
  std::string out;
  for (size_t i = quote.size(); i < source.size(); ++i) {
    if (source.substr(i).starts_with(quote)) return out;
    if (source[i] != '\\') {
      out += source[i];
      continue;
    }
    if (++i == source.size()) return {};
    constexpr std::array<std::pair<char, std::string_view>, 6> kEscapes = {
        {{'n', "\n"}, {'t', "\t"}, {'\\', "\\"}, {'"', "\""}, {'\'', "'"}, {'\n', ""}}};
    const auto* const known =
        std::find_if(kEscapes.begin(), kEscapes.end(), [&](const auto& e) { return e.first == source[i]; });
    if (known == kEscapes.end()) return {};
    out += known->second;
  }
  return {};
}

/// The string that `source` assigns to `variable` at the beginning of a line, with or without an annotation.
std::optional<std::string> assigned_string(std::string_view source, std::string_view variable) {
  for (size_t at = source.find(variable); at != std::string_view::npos; at = source.find(variable, at + 1)) {
    if (at != 0 && source[at - 1] != '\n') continue;
    const std::string_view rest = source.substr(at + variable.size());
    const size_t equals = rest.find_first_of("=\n");
    if (equals == std::string_view::npos || rest[equals] != '=') continue;
    const std::string_view between = rest.substr(0, equals);
    if (between.find_first_not_of(" \t") != std::string_view::npos &&
        between.substr(between.find_first_not_of(" \t")).front() != ':')
      continue;  // a longer name
    return python_string(rest.substr(equals + 1));
  }
  return {};
}

std::string jinja_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  }
  return out + "\"";
}

/// A format string of Python as an expression of Jinja that joins its texts and fields.
Result<std::string> format_expression(
    std::string_view format, const std::array<std::pair<std::string_view, std::string_view>, 4>& fields,
    const std::string& where) {
  std::string out, text;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      text += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      text += c;
      ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    const std::string_view field = format.substr(i + 1, end == std::string_view::npos ? end : end - i - 1);
    const auto* const known =
        std::find_if(fields.begin(), fields.end(), [&](const auto& f) { return f.first == field; });
    if (c == '}' || end == std::string_view::npos || known == fields.end())
      return invalid(where + " has the field {" + printable(field, 40) + "}, which Fovea does not know");
    out += jinja_string(text) + " ~ " + std::string(known->second) + " ~ ";
    text.clear();
    i = end;
  }
  return out + jinja_string(text);
}

}  // namespace

Result<std::string> deepseek_template(std::string_view encoder, const std::string& name) {
  struct Section {
    std::string_view variable, macro, argument;
  };
  std::string out(kTokens);
  for (const Section& section : {Section{"TOOLS_SYSTEM_TEMPLATE", "tools_section", "tool_schemas"},
                                 Section{"response_format_template", "format_section", "schema"}}) {
    const std::string where = name + ": " + std::string(section.variable);
    const auto format = assigned_string(encoder, section.variable);
    if (!format)
      return invalid(where + " is not a string there; take the file of the model's own repository");
    FOVEA_TRY(expression, format_expression(*format,
                                            {{{section.argument, "body"},
                                              {"dsml_token", "dsml"},
                                              {"thinking_start_token", "think"},
                                              {"thinking_end_token", "answer"}}},
                                            where));
    out += "{%- macro " + std::string(section.macro) + "(body) -%}{{ " + expression + " }}{%- endmacro -%}\n";
  }
  return out += kRules;
}

}  // namespace fovea
