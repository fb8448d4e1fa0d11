#include "text/jinja_lexer.h"

#include <array>

#include "text/jinja_ast.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

using Type = Token::Type;

// Bytes of the white-space character (Python's \s) that starts at, or ends before, a position; 0 if none
// does.
size_t space_at(std::string_view text, size_t pos) {
  if (pos >= text.size()) return 0;
  const Utf8Char c = decode_utf8(text.substr(pos));
  const bool space = is_white_space(c.code_point) || (c.code_point >= 0x1C && c.code_point <= 0x1F);
  return space ? c.length : 0;
}
size_t space_before(std::string_view text, size_t pos) {
  for (size_t length = 1; length <= 3 && length <= pos; ++length) {
    if (space_at(text, pos - length) == length) return length;
  }
  return 0;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool is_name(char c) {
  return is_name_start(c) || is_digit(c);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (pos_ < source_.size())
      root();
    add(Type::end, pos_, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] static void fail(size_t offset, std::string message) {
    throw Failure{std::move(message), static_cast<int64_t>(offset)};
  }
  void add(Type type, size_t offset, std::string text) {
    tokens_.push_back({type, static_cast<int64_t>(offset), std::move(text)});
  }
  bool at(size_t pos, std::string_view text) const { return source_.substr(pos, text.size()) == text; }
  char peek(size_t pos) const { return pos < source_.size() ? source_[pos] : '\0'; }

  // Plain text up to the next tag, and that tag.
  void root() {
    size_t tag = pos_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos) tag = source_.size();
      if (tag == source_.size() || peek(tag + 1) == '{' || peek(tag + 1) == '%' || peek(tag + 1) == '#')
        break;
      ++tag;
    }
    if (tag == source_.size()) {
      add_text(pos_, tag);
      pos_ = tag;
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = peek(tag + 2);
    add_text(pos_, strip_before(pos_, tag, sign, kind != '{'));
    pos_ = tag + 2 + (sign == '-' || sign == '+');
    if (kind == '#') {
      comment(tag);
    } else if (kind == '{') {
      add(Type::output_begin, tag, "");
      expression("}}", Type::output_end, tag);
    } else if (!raw(tag)) {
      add(Type::block_begin, tag, "");
      expression("%}", Type::block_end, tag);
    }
  }

  void add_text(size_t begin, size_t end) {
    if (begin < end) add(Type::text, begin, std::string(source_.substr(begin, end - begin)));
  }

  // End of the text [begin, end) after stripping by the following tag: "-" strips all white space, "+"
  // nothing, otherwise (lstrip_blocks) the blanks of its line if nothing else precedes a block or comment on
  // it.
  size_t strip_before(size_t begin, size_t end, char sign, bool lstrip) const {
    if (sign == '-') {
      while (end > begin) {
        const size_t length = space_before(source_, end);
        if (length == 0) break;
        end -= length;
      }
      return end;
    }
    if (sign == '+' || !lstrip) return end;
    size_t line = end;
    while (line > begin && source_[line - 1] != '\n') {
      const size_t length = space_before(source_, line);
      if (length == 0) return end;
      line -= length;
    }
    const bool line_start = line > begin || begin == 0 || source_[begin - 1] == '\n';
    return line_start ? line : end;
  }

  // `end` is behind an end tag whose sign was `sign`: "-" consumes all white space, otherwise (trim_blocks)
  // one newline.
  size_t strip_after(size_t end, char sign, bool trim) const {
    if (sign == '-') {
      end = skip_space(end);
    } else if (sign != '+' && trim && peek(end) == '\n') {
      ++end;
    }
    return end;
  }

  void comment(size_t tag) {
    const size_t end = source_.find("#}", pos_);
    if (end == std::string_view::npos) fail(tag, "unclosed comment; expected '#}'");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    pos_ = strip_after(end + 2, sign, true);
  }

  size_t skip_space(size_t pos) const {
    while (const size_t length = space_at(source_, pos))
      pos += length;
    return pos;
  }

  // Matches `word` with blanks around it and an end tag; returns the sign and the position behind "%}".
  bool bare_tag(size_t pos, std::string_view word, char& sign, size_t& end) const {
    pos = skip_space(pos);
    if (!at(pos, word)) return false;
    pos = skip_space(pos + word.size());
    sign = peek(pos);
    if (sign == '-' || sign == '+') ++pos;
    end = pos + 2;
    return at(pos, "%}");
  }

  bool raw(size_t tag) {
    char sign = '\0';
    size_t end = 0;
    if (!bare_tag(pos_, "raw", sign, end) || sign == '+') return false;
    const size_t begin = strip_after(end, sign, false);
    for (size_t close = begin; (close = source_.find("{%", close)) != std::string_view::npos; close += 2) {
      const char before = peek(close + 2);
      const size_t word = close + 2 + (before == '-' || before == '+');
      if (!bare_tag(word, "endraw", sign, end)) continue;
      add_text(begin, strip_before(begin, close, before, true));
      pos_ = strip_after(end, sign, true);
      return true;
    }
    fail(tag, "unclosed 'raw'; expected 'endraw'");
  }

  // Tokens up to `close`, which is not recognised inside brackets.
  void expression(std::string_view close, Type close_type, size_t tag) {
    std::string brackets;
    while (true) {
      pos_ = skip_space(pos_);
      if (pos_ == source_.size())
        fail(tag, std::string("unclosed tag; expected '") + std::string(close) + "'");
      if (brackets.empty()) {
        const char sign = source_[pos_];
        const size_t end = pos_ + ((sign == '-' || (sign == '+' && close == "%}")) ? 1 : 0);
        if (at(end, close)) {
          add(close_type, pos_, "");
          pos_ = strip_after(end + 2, sign, close == "%}");
          return;
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = source_[pos_];
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      const size_t begin = pos_;
      while (is_name(peek(pos_)))
        ++pos_;
      return add(Type::name, begin, std::string(source_.substr(begin, pos_ - begin)));
    }
    if (c == '"' || c == '\'') return string(c);
    op(brackets);
  }

  void op(std::string& brackets) {
    constexpr std::array<std::string_view, 6> kTwo = {"==", "!=", ">=", "<=", "**", "//"};
    for (const std::string_view two : kTwo) {
      if (at(pos_, two)) {
        add(Type::op, pos_, std::string(two));
        pos_ += 2;
        return;
      }
    }
    const char c = source_[pos_];
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos) {
      const Utf8Char whole = decode_utf8(source_.substr(pos_));
      fail(pos_,
           std::string("unexpected character '") + std::string(source_.substr(pos_, whole.length)) + "'");
    }
    if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(pos_, std::string("unexpected '") + c + "'");
      brackets.pop_back();
    }
    add(Type::op, pos_, std::string(1, c));
    ++pos_;
  }

  // Digits with single underscores between them.
  void digits(std::string& out) {
    while (is_digit(peek(pos_)) || (peek(pos_) == '_' && is_digit(peek(pos_ + 1)))) {
      if (source_[pos_] != '_') out += source_[pos_];
      ++pos_;
    }
  }

  // 0x1F, 0o17 and 0b11, kept as written without underscores.
  bool based_number() {
    const char base = static_cast<char>(peek(pos_ + 1) | 0x20);
    const std::string_view allowed = base == 'x'   ? "0123456789abcdefABCDEF"
                                     : base == 'o' ? "01234567"
                                     : base == 'b' ? "01"
                                                   : "";
    const auto fits = [&](char c) { return c != '\0' && allowed.find(c) != std::string_view::npos; };
    if (source_[pos_] != '0' || !(fits(peek(pos_ + 2)) || (peek(pos_ + 2) == '_' && fits(peek(pos_ + 3)))))
      return false;
    const size_t begin = pos_;
    std::string text = {'0', base};
    for (pos_ += 2; fits(peek(pos_)) || (peek(pos_) == '_' && fits(peek(pos_ + 1))); ++pos_) {
      if (source_[pos_] != '_') text += source_[pos_];
    }
    add(Type::integer, begin, std::move(text));
    return true;
  }

  void number() {
    if (based_number()) return;
    const size_t begin = pos_;
    std::string text;
    digits(text);
    bool real = false;
    // "a.0.1" is two subscripts, so no fraction after a dot.
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    if (!after_dot && peek(pos_) == '.' && is_digit(peek(pos_ + 1))) {
      real = true;
      text += '.';
      ++pos_;
      digits(text);
    }
    if (!after_dot && (peek(pos_) == 'e' || peek(pos_) == 'E')) {
      const size_t sign = peek(pos_ + 1) == '+' || peek(pos_ + 1) == '-' ? 1 : 0;
      if (is_digit(peek(pos_ + 1 + sign))) {
        real = true;
        text.append(source_.substr(pos_, 1 + sign));
        pos_ += 1 + sign;
        digits(text);
      }
    }
    if (!real && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
      fail(begin, "integer with leading zeros; write it without them");
    add(real ? Type::real : Type::integer, begin, std::move(text));
  }

  void string(char quote) {
    const size_t begin = pos_++;
    std::string text;
    while (true) {
      const size_t stop = source_.find_first_of(quote == '"' ? "\"\\" : "'\\", pos_);
      if (stop == std::string_view::npos) fail(begin, "string without a closing quote");
      text.append(source_.substr(pos_, stop - pos_));
      pos_ = stop + 1;
      if (source_[stop] == quote) break;
      escape(begin, text);
    }
    add(Type::string, begin, std::move(text));
  }

  // Python's escapes; pos_ is behind the backslash.
  void escape(size_t begin, std::string& out) {
    if (pos_ == source_.size()) fail(begin, "string without a closing quote");
    const char c = source_[pos_++];
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kChars = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      out += kChars[i];
    } else if (c == '\n') {
      return;  // a continued line
    } else if (c == 'x' || c == 'u' || c == 'U') {
      hex_escape(c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    } else if (c >= '0' && c <= '7') {
      uint32_t value = static_cast<uint32_t>(c - '0');
      for (int digit = 0; digit < 2 && peek(pos_) >= '0' && peek(pos_) <= '7'; ++digit) {
        value = value * 8 + static_cast<uint32_t>(source_[pos_++] - '0');
      }
      append_utf8(value, out);
    } else {
      out.append(1, '\\').append(1, c);
    }
  }

  void hex_escape(int length, std::string& out) {
    const size_t begin = pos_;
    uint32_t value = 0;
    for (int i = 0; i < length; ++i, ++pos_) {
      const char c = peek(pos_);
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0)
        fail(begin, std::string("escape needs ") + std::to_string(length) + " hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    append_utf8(value, out);
  }

  std::string_view source_;
  size_t pos_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  const std::string valid = to_valid_utf8(source);
  std::string out;
  out.reserve(valid.size());
  for (size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] == '\r') {
      out += '\n';
      if (i + 1 < valid.size() && valid[i + 1] == '\n') ++i;
    } else {
      out += valid[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace fovea::text::jinja
