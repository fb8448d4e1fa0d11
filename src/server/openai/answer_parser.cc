#include "server/openai/answer_parser.h"

#include <algorithm>
#include <array>

#include "base/same_name.h"
#include "fovea/result.h"
#include "server/openai/json_writer.h"
#include "server/openai/python_literal.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kPythonTag = "<|python_tag|>";

bool is_space(char c) {
  return kSpace.find(c) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

std::string decoded(const std::string& quoted) {
  const auto value = text::parse_json(quoted, "string");
  return value && value->string() ? *value->string() : quoted;
}

std::string as_json(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

enum class Verdict : uint8_t { no, maybe, yes };

/// Whether a text begins with an object whose first member names a tool.
Verdict begins_call(std::string_view text) {
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size())); };
  skip();
  if (text.empty()) return Verdict::maybe;
  if (text[0] != '{') return Verdict::no;
  text.remove_prefix(1);
  skip();
  for (const std::string_view key : {"\"name\"", "\"type\"", "\"parameters\"", "\"arguments\""}) {
    if (text.starts_with(key)) return Verdict::yes;
    if (key.starts_with(text)) return Verdict::maybe;
  }
  return Verdict::no;
}

struct Name {
  ToolFormat format;
  std::string_view name;
};
constexpr Name kNames[] = {
    {ToolFormat::none, "none"},
    {ToolFormat::hermes, "hermes"},
    {ToolFormat::llama3_json, "llama3_json"},
    {ToolFormat::pythonic, "pythonic"},
    {ToolFormat::mistral, "mistral"},
    {ToolFormat::qwen3_coder, "qwen3_coder"},
    {ToolFormat::deepseek_v3, "deepseek_v3"},
    {ToolFormat::deepseek_v31, "deepseek_v31"},
    {ToolFormat::deepseek_v32, "deepseek_v32"},
    {ToolFormat::kimi_k2, "kimi_k2"},
    {ToolFormat::glm4, "glm4"},
    {ToolFormat::minimax, "minimax"},
    {ToolFormat::gemma, "gemma"},
    {ToolFormat::harmony, "harmony"},
};
/// What others call the same formats.
constexpr Name kOtherNames[] = {
    {ToolFormat::hermes, "qwen"},
    {ToolFormat::hermes, "qwen25"},
    {ToolFormat::hermes, "qwen3"},
    {ToolFormat::llama3_json, "llama3"},
    {ToolFormat::llama3_json, "llama4_json"},
    {ToolFormat::pythonic, "llama4_pythonic"},
    {ToolFormat::qwen3_coder, "qwen3_xml"},
    {ToolFormat::deepseek_v31, "deepseek_v3.1"},
    {ToolFormat::deepseek_v31, "v3.1"},
    {ToolFormat::deepseek_v32, "deepseek_v3.2"},
    {ToolFormat::deepseek_v32, "v3.2"},
    {ToolFormat::deepseek_v3, "deepseekv3"},
    {ToolFormat::glm4, "glm45"},
    {ToolFormat::glm4, "glm47"},
    {ToolFormat::minimax, "minimax_m2"},
    {ToolFormat::gemma, "gemma4"},
    {ToolFormat::harmony, "openai"},
    {ToolFormat::harmony, "gpt-oss"},
};

constexpr auto kNameList = [] {
  std::array<std::string_view, std::size(kNames)> list{};
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = kNames[i].name;
  return list;
}();

}  // namespace

std::string_view to_string(ToolFormat format) {
  for (const Name& known : kNames)
    if (known.format == format) return known.name;
  return "json";
}

std::optional<ToolFormat> parse_tool_format(std::string_view name) {
  for (const Name& known : kNames)
    if (same_name(known.name, name)) return known.format;
  for (const Name& known : kOtherNames)
    if (same_name(known.name, name)) return known.format;
  return std::nullopt;
}

std::span<const std::string_view> tool_format_names() {
  return kNameList;
}

/// `open` begins a section of calls in the content, or a call itself if there is no `call`.
struct AnswerParser::Tags {
  std::vector<std::string_view> open;
  std::string_view call, call_end, section_end;
  Mode after_call = Mode::header;  // after `call`, or `open` without one
  // XML: how a function, its parameters and their values are written.
  std::string_view name_end, parameter, parameter_name_end, parameter_end, function_end;
};

const AnswerParser::Tags& AnswerParser::tags_of(ToolFormat format) {
  static const Tags none{{}, "", "", "", Mode::content, "", "", "", "", ""};
  static const Tags hermes{{"<tool_call>"}, "", "</tool_call>", "", Mode::object, "", "", "", "", ""};
  static const Tags mistral{{"[TOOL_CALLS]"}, "", "", "", Mode::header, "", "", "", "", ""};
  static const Tags qwen{{"<tool_call>", "<function="},
                         "<function=",
                         "",
                         "</tool_call>",
                         Mode::function,
                         ">",
                         "<parameter=",
                         ">",
                         "</parameter>",
                         "</function>"};
  static const Tags deepseek{{"<｜tool▁calls▁begin｜>"},
                             "<｜tool▁call▁begin｜>",
                             "<｜tool▁call▁end｜>",
                             "<｜tool▁calls▁end｜>",
                             Mode::header,
                             "",
                             "",
                             "",
                             "",
                             ""};
  static const Tags dsml{{"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
                         "<｜DSML｜invoke name=\"",
                         "",
                         "</｜DSML｜function_calls>",
                         Mode::function,
                         "\">",
                         "<｜DSML｜parameter name=\"",
                         ">",
                         "</｜DSML｜parameter>",
                         "</｜DSML｜invoke>"};
  static const Tags kimi{{"<|tool_calls_section_begin|>"},
                         "<|tool_call_begin|>",
                         "<|tool_call_end|>",
                         "<|tool_calls_section_end|>",
                         Mode::header,
                         "",
                         "",
                         "",
                         "",
                         ""};
  static const Tags glm{
      {"<tool_call>"}, "", "", "", Mode::function, "", "<arg_key>", "</arg_key>", "</arg_value>",
      "</tool_call>"};
  static const Tags minimax{{"<minimax:tool_call>"},
                            "<invoke name=\"",
                            "",
                            "</minimax:tool_call>",
                            Mode::function,
                            "\">",
                            "<parameter name=\"",
                            "\">",
                            "</parameter>",
                            "</invoke>"};
  static const Tags gemma{{"<|tool_call>"}, "", "<tool_call|>", "", Mode::header, "", "", "", "", ""};
  switch (format) {
    case ToolFormat::hermes: return hermes;
    case ToolFormat::mistral: return mistral;
    case ToolFormat::qwen3_coder: return qwen;
    case ToolFormat::deepseek_v3:
    case ToolFormat::deepseek_v31: return deepseek;
    case ToolFormat::deepseek_v32: return dsml;
    case ToolFormat::kimi_k2: return kimi;
    case ToolFormat::glm4: return glm;
    case ToolFormat::minimax: return minimax;
    case ToolFormat::gemma: return gemma;
    default: return none;
  }
}

AnswerParser::AnswerParser(AnswerFormat format, std::function<std::string()> new_id)
    : format_(std::move(format)), new_id_(std::move(new_id)) {
  if (format_.thinking && !format_.think_end.empty()) mode_ = Mode::reasoning;
}

void AnswerParser::push(std::string_view text, AnswerDelta& out) {
  buffer_ += text;
  while (step(false, out)) {
  }
}

void AnswerParser::finish(AnswerDelta& out) {
  while (step(true, out)) {
  }
  if (mode_ == Mode::content && calls_ == 0) out.content += blanks_;
  blanks_.clear();
}

/// False when nothing more can be done with what is there.
bool AnswerParser::step(bool last, AnswerDelta& out) {
  switch (mode_) {
    case Mode::start: return step_start(last, out);
    case Mode::reasoning: {
      std::string text;
      const std::array<std::string_view, 1> tags{format_.think_end};
      const size_t before = buffer_.size();
      const bool ended = take_until(tags, last, text);
      for (const char c : text) {
        if (is_space(c)) {
          if (any_content_) blanks_ += c;  // leading and trailing white space is no part of it
          continue;
        }
        any_content_ = true;
        out.reasoning += blanks_ + c;
        blanks_.clear();
      }
      if (ended) {
        blanks_.clear();
        any_content_ = false;
        format_.think_begin.clear();
        format_.thinking = true;  // white space after the reasoning is dropped
        mode_ = Mode::start;
      }
      return ended || buffer_.size() != before;
    }
    case Mode::content: return step_content(last, out);
    case Mode::between: return step_between(last, out);
    case Mode::header: return step_header(out);
    case Mode::object: return step_object(out);
    case Mode::arguments: return step_arguments(out);
    case Mode::call_end: {
      const Tags& tags = tags_of(format_.tools);
      std::string dropped;
      std::vector<std::string_view> ends{tags.call_end};
      ends.insert(ends.end(), tags.open.begin(), tags.open.end());
      size_t which = 0;
      if (!take_until(ends, last, dropped, &which)) return false;
      mode_ = which == 0 ? Mode::between : tags.after_call;
      return true;
    }
    case Mode::function: return step_function(out);
    case Mode::parameter: return step_parameter();
    case Mode::value: return step_value(out);
    case Mode::python: return step_python(last, out);
    case Mode::channel: return step_channel(out);
    case Mode::message: return step_message(last, out);
    case Mode::rest: buffer_.clear(); return false;
  }
  return false;
}

bool AnswerParser::take_until(std::span<const std::string_view> tags, bool last, std::string& text,
                              size_t* which) {
  for (size_t at = 0; at < buffer_.size(); ++at) {
    const std::string_view rest = std::string_view(buffer_).substr(at);
    bool may = false;
    for (size_t i = 0; i < tags.size(); ++i) {
      if (tags[i].empty()) continue;
      if (rest.starts_with(tags[i])) {
        text += buffer_.substr(0, at);
        buffer_.erase(0, at + tags[i].size());
        if (which) *which = i;
        return true;
      }
      may |= tags[i].starts_with(rest);
    }
    if (may && !last) {
      text += buffer_.substr(0, at);
      buffer_.erase(0, at);
      return false;
    }
  }
  text += buffer_;
  buffer_.clear();
  return false;
}

bool AnswerParser::begins_with(std::string_view tag, bool& may) const {
  if (tag.empty()) return false;
  if (buffer_.starts_with(tag)) return true;
  may |= tag.starts_with(buffer_);
  return false;
}

void AnswerParser::skip_space() {
  buffer_.erase(0, std::min(buffer_.find_first_not_of(kSpace), buffer_.size()));
}

/// What the answer, or its part after the reasoning, begins with.
bool AnswerParser::step_start(bool last, AnswerDelta& out) {
  if (format_.tools == ToolFormat::harmony) {
    mode_ = Mode::channel;
    return true;
  }
  if (format_.tools == ToolFormat::json_named) {
    begin_call(format_.named, "", out);
    mode_ = Mode::arguments;
    return true;
  }
  const size_t space = std::min(buffer_.find_first_not_of(kSpace), buffer_.size());
  if (space == buffer_.size() && !last) return false;
  if (format_.thinking) {
    buffer_.erase(0, space);
    format_.thinking = false;
    return true;
  }
  const std::string_view rest = std::string_view(buffer_).substr(space);
  if (!format_.think_begin.empty() && rest.starts_with(format_.think_begin)) {
    buffer_.erase(0, space + format_.think_begin.size());
    mode_ = Mode::reasoning;
    return true;
  }
  if (!format_.think_begin.empty() && !last && format_.think_begin.starts_with(rest)) return false;
  if (format_.tools == ToolFormat::json_array) {
    in_list_ = true;
    mode_ = Mode::between;
    return true;
  }
  if (format_.tools == ToolFormat::llama3_json) {
    std::string_view call = rest;
    if (!last && kPythonTag.starts_with(call)) return false;
    if (call.starts_with(kPythonTag)) call.remove_prefix(kPythonTag.size());
    const Verdict verdict = begins_call(call);
    if (verdict == Verdict::maybe && !last) return false;
    if (verdict == Verdict::yes) {
      buffer_.erase(0, buffer_.size() - call.size());
      mode_ = Mode::object;
      return true;
    }
  }
  if (format_.tools == ToolFormat::pythonic) {
    const auto verdict = python_call_begins(rest);
    if (!verdict && !last) return false;
    if (verdict.value_or(false)) {
      buffer_.erase(0, space + 1);
      mode_ = Mode::python;
      return true;
    }
  }
  mode_ = Mode::content;
  return true;
}

void AnswerParser::add_content(std::string_view text, AnswerDelta& out) {
  const bool holds = format_.tools != ToolFormat::none;
  for (const char c : text) {
    if (holds && is_space(c)) {
      blanks_ += c;
      continue;
    }
    out.content += blanks_;
    out.content += c;
    blanks_.clear();
  }
}

bool AnswerParser::step_content(bool last, AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
  std::string text;
  size_t which = 0;
  const size_t before = buffer_.size();
  const bool opened = take_until(tags.open, last, text, &which);
  add_content(text, out);
  if (!opened) return buffer_.size() != before && !buffer_.empty();
  blanks_.clear();
  // Where calls have a tag of their own, the section comes first, unless the model leaves it out.
  mode_ = tags.call.empty() || tags.open[which] == tags.call ? tags.after_call : Mode::between;
  in_list_ = false;
  return true;
}

/// Before, between and after the calls of a section.
bool AnswerParser::step_between(bool last, AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
  skip_space();
  if (buffer_.empty()) return false;
  if (in_list_ || format_.tools == ToolFormat::llama3_json) {
    const char c = buffer_[0];
    if (c == '{') {
      mode_ = Mode::object;
    } else if (c == ',' || c == '[' || (c == ';' && !in_list_)) {
      buffer_.erase(0, 1);
    } else if (c == ']' && in_list_) {
      buffer_.erase(0, 1);
      in_list_ = false;
      mode_ = format_.tools == ToolFormat::json_array ? Mode::rest : Mode::content;
    } else {
      mode_ = format_.tools == ToolFormat::json_array ? Mode::rest : Mode::content;
    }
    return true;
  }
  bool may = false;
  if (begins_with(tags.section_end, may)) {
    buffer_.erase(0, tags.section_end.size());
    mode_ = Mode::content;
    return true;
  }
  if (begins_with(tags.call, may)) {
    buffer_.erase(0, tags.call.size());
    mode_ = tags.after_call;
    return true;
  }
  for (const std::string_view open : tags.open)
    if (begins_with(open, may)) {
      mode_ = Mode::content;
      return true;
    }
  if (may && !last) return false;
  if (format_.tools == ToolFormat::deepseek_v32 && buffer_.starts_with("</｜DSML｜")) {
    const size_t end = buffer_.find('>');
    if (end == std::string::npos) return false;
    buffer_.erase(0, end + 1);
  }
  mode_ = Mode::content;
  (void)out;
  return true;
}

void AnswerParser::begin_call(std::string name, std::string id, AnswerDelta& out) {
  dropping_ = format_.one_call && calls_ > 0;
  begun_ = true;
  any_parameter_ = false;
  name_ = name;
  if (dropping_) return;
  if (id.empty()) id = new_id_();
  out.calls.push_back({calls_++, true, std::move(id), std::move(name), ""});
}

void AnswerParser::add_arguments(std::string_view text, AnswerDelta& out) {
  if (dropping_ || text.empty()) return;
  if (out.calls.empty() || out.calls.back().index != calls_ - 1)
    out.calls.push_back({calls_ - 1, false, "", "", ""});
  out.calls.back().arguments += text;
}

void AnswerParser::end_call(AnswerDelta&) {
  begun_ = false;
  depth_ = 0;
  in_string_ = escaped_ = started_ = false;
  raw_.clear();
  name_.clear();
  key_.clear();
  member_ = 0;
}

bool AnswerParser::scan(char c) {
  started_ = true;
  if (in_string_) {
    if (escaped_)
      escaped_ = false;
    else if (c == '\\')
      escaped_ = true;
    else if (c == '"')
      in_string_ = false;
    return !in_string_ && depth_ == 0;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') return --depth_ <= 0;
  return false;
}

/// The name before the arguments' brace.
bool AnswerParser::step_header(AnswerDelta& out) {
  if (format_.tools == ToolFormat::mistral && raw_.empty()) {
    skip_space();
    if (buffer_.empty()) return false;
    if (buffer_[0] == '[') {
      in_list_ = true;
      mode_ = Mode::between;
      return true;
    }
  }
  const size_t brace = buffer_.find('{');
  if (brace == std::string::npos) return false;
  std::string_view head = trimmed(std::string_view(buffer_).substr(0, brace));
  std::string id;
  const auto before = [](std::string_view text, std::string_view mark) {
    return text.substr(0, text.find(mark));
  };
  switch (format_.tools) {
    case ToolFormat::deepseek_v3: {
      constexpr std::string_view kSep = "<｜tool▁sep｜>";
      if (const size_t at = head.find(kSep); at != std::string_view::npos)
        head.remove_prefix(at + kSep.size());
      head = before(before(head, "\n"), "```");
      break;
    }
    case ToolFormat::deepseek_v31: head = before(head, "<｜tool▁sep｜>"); break;
    case ToolFormat::kimi_k2:
      head = before(head, "<|tool_call_argument_begin|>");
      id = trimmed(head);
      if (head.starts_with("functions.")) head.remove_prefix(10);
      head = head.substr(0, head.rfind(':'));
      break;
    case ToolFormat::mistral: {
      const std::string_view call_id = "[CALL_ID]";
      std::string_view all = before(head, "[ARGS]");
      head = before(all, call_id);
      if (all.size() > head.size()) id = trimmed(all.substr(head.size() + call_id.size()));
      break;
    }
    case ToolFormat::gemma:
      if (head.starts_with("call:")) head.remove_prefix(5);
      break;
    default: break;
  }
  begin_call(std::string(trimmed(head)), id, out);
  buffer_.erase(0, brace);
  mode_ = Mode::arguments;
  return true;
}

bool AnswerParser::step_arguments(AnswerDelta& out) {
  if (!started_) skip_space();
  for (size_t i = 0; i < buffer_.size(); ++i) {
    if (!scan(buffer_[i])) continue;
    add_arguments(std::string_view(buffer_).substr(0, i + 1), out);
    buffer_.erase(0, i + 1);
    end_call(out);
    mode_ = format_.tools == ToolFormat::json_named   ? Mode::rest
            : tags_of(format_.tools).call_end.empty() ? Mode::between
                                                      : Mode::call_end;
    return true;
  }
  add_arguments(buffer_, out);
  buffer_.clear();
  return false;
}

/// {"name": N, "arguments": {...}}: member_ is the place in it.
bool AnswerParser::step_object(AnswerDelta& out) {
  enum Place : size_t { kOpen, kKey, kInKey, kColon, kValue, kInValue, kAfter };
  const auto is_arguments = [&] { return key_ == "arguments" || key_ == "parameters"; };
  const auto streams = [&] { return is_arguments() && begun_ && raw_.starts_with("{"); };
  const auto end_value = [&] {
    if (key_ == "name" && !begun_) {
      const std::string early = std::move(recipient_);  // arguments that came before the name
      begin_call(decoded(raw_), "", out);
      add_arguments(early, out);
      recipient_.clear();
      any_parameter_ = !early.empty();
    } else if (is_arguments() && !streams()) {
      const std::string text = raw_.starts_with("\"") ? decoded(raw_) : raw_ == "null" ? "{}" : raw_;
      if (begun_)
        add_arguments(text, out);
      else
        recipient_ = text;
      any_parameter_ = true;
    } else if (is_arguments()) {
      any_parameter_ = true;
    }
    raw_.clear();
    started_ = false;
    member_ = kAfter;
  };
  for (size_t i = 0; i < buffer_.size(); ++i) {
    const char c = buffer_[i];
    switch (member_) {
      case kOpen:
        if (c == '{') member_ = kKey;
        break;
      case kKey:
        if (c == '"') {
          key_ = c;
          member_ = kInKey;
        } else if (c == '}') {
          member_ = kAfter;
          --i;
        }
        break;
      case kInKey:
        key_ += c;
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          key_ = decoded(key_);
          member_ = kColon;
        }
        break;
      case kColon:
        if (c == ':') member_ = kValue;
        break;
      case kValue:
        if (is_space(c)) break;
        raw_.clear();
        depth_ = 0;
        member_ = kInValue;
        [[fallthrough]];
      case kInValue: {
        const bool bare = depth_ == 0 && !in_string_ && !raw_.empty();
        if (bare && (c == ',' || c == '}' || is_space(c))) {
          end_value();
          --i;
          break;
        }
        if (streams())
          add_arguments(std::string_view(&c, 1), out);
        else
          raw_ += c;
        if (raw_ == "{" && raw_.size() == 1 && depth_ == 0 && streams()) add_arguments("{", out);
        if (scan(c)) end_value();
        break;
      }
      case kAfter:
        if (c == ',') member_ = kKey;
        if (c != '}') break;
        if (begun_ && !any_parameter_) add_arguments("{}", out);
        buffer_.erase(0, i + 1);
        end_call(out);
        recipient_.clear();
        mode_ = in_list_ || tags_of(format_.tools).call_end.empty() ? Mode::between : Mode::call_end;
        return true;
      default: break;
    }
  }
  buffer_.clear();
  return false;
}

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
    begin_call(std::string(trimmed(name)), "", out);
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
    key_ = trimmed(head);
    consumed = at + value.size();
  } else {
    key_ = trimmed(head);
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
  const std::string text(trimmed(value));
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

/// After the bracket: calls, each taken when it is whole.
bool AnswerParser::step_python(bool last, AnswerDelta& out) {
  skip_space();
  if (buffer_.empty()) return false;
  if (buffer_[0] == ',') {
    buffer_.erase(0, 1);
    return true;
  }
  if (buffer_[0] == ']') {
    buffer_.erase(0, 1);
    mode_ = Mode::content;
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

bool AnswerParser::step_channel(AnswerDelta& out) {
  constexpr std::string_view kMessage = "<|message|>";
  const size_t end = buffer_.find(kMessage);
  if (end == std::string::npos) return false;
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
    out.reasoning += text;
  else
    out.content += text;
  if (ended) {
    end_call(out);
    mode_ = Mode::channel;
  }
  return ended || (buffer_.size() != before && !buffer_.empty());
}

ToolFormat detect_tool_format(std::string_view rendered) {
  const auto has = [&](std::string_view tag) { return rendered.find(tag) != std::string_view::npos; };
  if (has("to=functions.")) return ToolFormat::harmony;
  if (has("<｜DSML｜")) return ToolFormat::deepseek_v32;
  if (has("<｜tool▁call▁begin｜>"))
    return has("<｜tool▁call▁begin｜>function<｜tool▁sep｜>") ? ToolFormat::deepseek_v3
                                                              : ToolFormat::deepseek_v31;
  if (has("<|tool_call_begin|>")) return ToolFormat::kimi_k2;
  if (has("<minimax:tool_call>")) return ToolFormat::minimax;
  if (has("[TOOL_CALLS]")) return ToolFormat::mistral;
  if (has("<arg_key>")) return ToolFormat::glm4;
  if (has("<function=")) return ToolFormat::qwen3_coder;
  if (has("<tool_call>")) return ToolFormat::hermes;
  if (has("<|tool_call>")) return ToolFormat::gemma;
  if (has("probe_tool(")) return ToolFormat::pythonic;
  if (has("\"name\": \"probe_tool\", \"parameters\"")) return ToolFormat::llama3_json;
  return ToolFormat::none;
}

}  // namespace fovea::openai
