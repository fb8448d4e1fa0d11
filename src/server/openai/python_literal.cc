#include "server/openai/python_literal.h"

#include "fovea/result.h"
#include "server/openai/json_writer.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-';
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::optional<PythonCall> call() {
    PythonCall out;
    out.name = name();
    if (out.name.empty() || !take('(')) return std::nullopt;
    out.arguments = "{";
    for (bool first = true; !take(')'); first = false) {
      if (!first && !take(',')) return std::nullopt;
      if (!first && take(')')) break;
      const std::string key = name();
      if (key.empty() || !take('=')) return std::nullopt;
      if (!first) out.arguments += ", ";
      append_string(out.arguments, key);
      out.arguments += ": ";
      if (!value(out.arguments, 0)) return std::nullopt;
    }
    out.arguments += "}";
    space();
    return at_ == text_.size() ? std::optional(std::move(out)) : std::nullopt;
  }

 private:
  void space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }
  bool take(char c) {
    space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string name() {
    space();
    const size_t start = at_;
    while (at_ < text_.size() && is_name(text_[at_]))
      ++at_;
    return std::string(text_.substr(start, at_ - start));
  }

  bool value(std::string& out, int depth) {
    space();
    if (depth > 50 || at_ == text_.size()) return false;
    const char c = text_[at_];
    if (c == '"' || c == '\'') return string(out);
    if (take('[')) return list(out, ']', depth);
    if (take('(')) return list(out, ')', depth);
    if (take('{')) return dictionary(out, depth);
    const size_t start = at_;
    while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '+'))
      ++at_;
    const std::string word(text_.substr(start, at_ - start));
    if (word == "True" || word == "true") return out += "true", true;
    if (word == "False" || word == "false") return out += "false", true;
    if (word == "None" || word == "null") return out += "null", true;
    const auto number = text::parse_json(word, "number");
    if (!number || number->string() || (!number->integer() && !number->real())) return false;
    out += word;
    return true;
  }

  bool list(std::string& out, char end, int depth) {
    out += '[';
    for (bool first = true; !take(end); first = false) {
      if (!first && !take(',')) return false;
      if (!first && take(end)) break;
      if (!first) out += ", ";
      if (!value(out, depth + 1)) return false;
    }
    out += ']';
    return true;
  }

  bool dictionary(std::string& out, int depth) {
    out += '{';
    for (bool first = true; !take('}'); first = false) {
      if (!first && !take(',')) return false;
      if (!first && take('}')) break;
      if (!first) out += ", ";
      space();
      if (at_ == text_.size() || (text_[at_] != '"' && text_[at_] != '\'') || !string(out) || !take(':'))
        return false;
      out += ": ";
      if (!value(out, depth + 1)) return false;
    }
    out += '}';
    return true;
  }

  bool string(std::string& out) {
    const char mark = text_[at_++];
    std::string text;
    for (; at_ < text_.size() && text_[at_] != mark; ++at_) {
      if (text_[at_] != '\\' || at_ + 1 == text_.size()) {
        text += text_[at_];
        continue;
      }
      const char c = text_[++at_];
      switch (c) {
        case 'n': text += '\n'; break;
        case 't': text += '\t'; break;
        case 'r': text += '\r'; break;
        case 'u': {
          const auto code =
              text::parse_json("\"\\u" + std::string(text_.substr(at_ + 1, 4)) + "\"", "escape");
          if (!code || !code->string()) return false;
          text += *code->string();
          at_ += 4;
          break;
        }
        case '\\':
        case '\'':
        case '"': text += c; break;
        default: (text += '\\') += c;
      }
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    append_string(out, text);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<bool> python_call_begins(std::string_view text) {
  if (text.empty()) return std::nullopt;
  if (text[0] != '[') return false;
  text.remove_prefix(1);
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  size_t length = 0;
  while (length < text.size() && is_name(text[length]))
    ++length;
  if (length == text.size()) return std::nullopt;
  const bool starts = length > 0 && !(text[0] >= '0' && text[0] <= '9') && text[0] != '-' && text[0] != '.';
  return starts && text[length] == '(';
}

size_t python_call_length(std::string_view text) {
  int depth = 0;
  char mark = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (mark != 0) {
      if (c == '\\')
        ++i;
      else if (c == mark)
        mark = 0;
    } else if (c == '"' || c == '\'') {
      mark = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      if (--depth == 0 && c == ')') return i + 1;
      if (depth < 0) return i + 1;
    }
  }
  return 0;
}

std::optional<PythonCall> read_python_call(std::string_view text) {
  return Reader(text).call();
}

}  // namespace fovea::openai
