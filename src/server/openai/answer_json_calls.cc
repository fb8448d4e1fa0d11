// AnswerParser: calls whose arguments are JSON.
#include <algorithm>

#include "fovea/result.h"
#include "server/openai/answer_tags.h"
#include "text/json_value.h"

namespace fovea::openai {
namespace {

std::string decoded(const std::string& quoted) {
  const auto value = text::parse_json(quoted, "string");
  return value && value->string() ? *value->string() : quoted;
}

}  // namespace

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

bool AnswerParser::breaks_off(char c) const {
  return c == '<' && !in_string_ && !tags_of(format_.tools).call_end.empty();
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
  const std::string_view call_end = tags_of(format_.tools).call_end;
  if (const size_t end = call_end.empty() ? std::string::npos : buffer_.find(call_end); end < brace) {
    held_ = buffer_.substr(0, end + call_end.size());
    buffer_.erase(0, held_.size());
    not_a_call(out);
    return true;
  }
  if (brace == std::string::npos) return false;
  std::string_view head = without_space(std::string_view(buffer_).substr(0, brace));
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
      id = without_space(head);
      if (head.starts_with("functions.")) head.remove_prefix(10);
      head = head.substr(0, head.rfind(':'));
      break;
    case ToolFormat::mistral: {
      const std::string_view call_id = "[CALL_ID]";
      std::string_view all = before(head, "[ARGS]");
      head = before(all, call_id);
      if (all.size() > head.size()) id = without_space(all.substr(head.size() + call_id.size()));
      break;
    }
    case ToolFormat::functiongemma:
    case ToolFormat::gemma:
      if (head.starts_with("call:")) head.remove_prefix(5);
      break;
    default: break;
  }
  begin_call(std::string(without_space(head)), id, out);
  buffer_.erase(0, brace);
  const bool loose = format_.tools == ToolFormat::gemma || format_.tools == ToolFormat::functiongemma;
  loose_ = Loose::value;
  mode_ = loose ? Mode::loose : Mode::arguments;
  return true;
}

bool AnswerParser::step_arguments(AnswerDelta& out) {
  if (!started_) skip_space();
  for (size_t i = 0; i < buffer_.size(); ++i) {
    if (breaks_off(buffer_[i])) {
      add_arguments(std::string_view(buffer_).substr(0, i), out);
      buffer_.erase(0, i);
      end_call(out);
      mode_ = Mode::call_end;
      return true;
    }
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
    const bool other_text = member_ == kOpen && c != '{' && !is_answer_space(c);
    if (other_text || (member_ != kInKey && breaks_off(c))) {
      buffer_.erase(0, i);
      if (begun_) {
        end_call(out);
        recipient_.clear();
        mode_ = Mode::call_end;
      } else {
        not_a_call(out);
      }
      return true;
    }
    if (!begun_) held_ += c;
    switch (member_) {
      case kOpen:
        if (c == '{') member_ = kKey;
        break;
      case kKey:
        if (c == '"') {
          key_ = c;
          member_ = kInKey;
        } else if (c == '}') {
          if (!begun_) held_.pop_back();
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
        if (is_answer_space(c)) break;
        raw_.clear();
        depth_ = 0;
        member_ = kInValue;
        [[fallthrough]];
      case kInValue: {
        const bool bare = depth_ == 0 && !in_string_ && !raw_.empty();
        if (bare && (c == ',' || c == '}' || is_answer_space(c))) {
          if (!begun_) held_.pop_back();
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
        if (!begun_ && !in_list_ && calls_ == 0) {  // it has no name
          not_a_call(out);
          return true;
        }
        held_.clear();
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

}  // namespace fovea::openai
