#include "flex/lexer.h"

#include <array>
#include <charconv>

#include "base/printable.h"

namespace fovea::flex {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Longer symbols first.
constexpr std::array<std::string_view, 28> kSymbols = {
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "//", "+", "-", "*", "/", "%",
    "&",  "|",  "^",  "~",  "!",  "<",  ">",  "?",  ":",  "(", ")", "[", "]", ","};

}  // namespace

Error Lexer::error(size_t at, std::string_view message) const {
  return invalid(std::string(what_) + ", column " + std::to_string(at + 1) + ": " + std::string(message));
}

Error Lexer::expected(const Token& found, std::string_view expectation) const {
  const std::string what = found.kind == Token::Kind::end ? "the end" : "'" + printable(found.text, 40) + "'";
  return error(found.at, "expected " + std::string(expectation) + ", found " + what);
}

Result<Token> Lexer::number(size_t from) {
  Token token;
  token.kind = Token::Kind::integer;
  token.at = from;
  const char* const first = text_.data() + from;
  const char* const last = text_.data() + text_.size();
  const bool hex = text_.substr(from, 2) == "0x" || text_.substr(from, 2) == "0X";
  const char* end = first + (hex ? 2 : 0);
  while (!hex && end < last && is_digit(*end))
    ++end;
  const bool real = !hex && end < last && (*end == '.' || *end == 'e' || *end == 'E');
  if (real) {
    token.kind = Token::Kind::real;
    const auto [stop, failed] = std::from_chars(first, last, token.value);
    if (failed != std::errc{}) return error(from, "a number out of range, or not a number");
    end = stop;
  } else {
    uint64_t value = 0;
    const auto [stop, failed] = std::from_chars(hex ? first + 2 : first, last, value, hex ? 16 : 10);
    const uint64_t most = hex ? 0xffffffffu : 0x80000000u;  // -2147483648 is the minus of the latter
    if (failed == std::errc::result_out_of_range || (failed == std::errc{} && value > most))
      return error(from, "an integer beyond 32 bits; write a float (with a point) or a smaller number");
    if (failed != std::errc{}) return error(from, "expected digits after 0x");
    token.value = static_cast<int32_t>(static_cast<uint32_t>(value));
    end = stop;
  }
  if (end < last && (begins_name(*end) || is_digit(*end) || *end == '.'))
    return error(from,
                 "a number that goes on in '" + printable({end, 1}) + "'; put a space or an operator there");
  token.text = {first, static_cast<size_t>(end - first)};
  at_ = from + token.text.size();
  return token;
}

Result<Token> Lexer::next() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
    ++at_;
  Token token;
  token.at = at_;
  if (at_ == text_.size()) return token;
  const char c = text_[at_];
  if (is_digit(c) || (c == '.' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) return number(at_);
  if (begins_name(c)) {
    size_t end = at_;
    while (end < text_.size() && (begins_name(text_[end]) || is_digit(text_[end])))
      ++end;
    token.kind = Token::Kind::name;
    token.text = text_.substr(at_, end - at_);
    at_ = end;
    return token;
  }
  for (const std::string_view symbol : kSymbols) {
    if (!text_.substr(at_).starts_with(symbol)) continue;
    token.kind = Token::Kind::symbol;
    token.text = text_.substr(at_, symbol.size());
    at_ += symbol.size();
    return token;
  }
  if (c == '=') return error(at_, "'=' assigns, which expressions can't; compare with '=='");
  return error(at_, "'" + printable({&text_[at_], 1}) + "' is not part of the language");
}

}  // namespace fovea::flex
