#include "text/jinja_characters.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

template <class Predicate>
bool all_characters(std::string_view text, Predicate predicate) {
  if (text.empty()) return false;
  for (; !text.empty(); text.remove_prefix(decode_utf8(text).length)) {
    if (!predicate(decode_utf8(text).code_point)) return false;
  }
  return true;
}

// At least one cased character, and all cased ones satisfy the predicate.
template <class Predicate>
bool all_cased(std::string_view text, Predicate predicate) {
  bool any = false;
  for (; !text.empty(); text.remove_prefix(decode_utf8(text).length)) {
    const uint32_t c = decode_utf8(text).code_point;
    if (!is_cased(c)) continue;
    if (!predicate(c)) return false;
    any = true;
  }
  return any;
}

bool is_decimal(uint32_t c) {
  return is_numeric(c) && is_word(c);
}

// Decimal digits, and those in circles, dots, brackets, above and below a line.
bool is_digit(uint32_t c) {
  constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
      {0xB2, 0xB3},     {0xB9, 0xB9},     {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089},
      {0x2460, 0x2468}, {0x2474, 0x247C}, {0x2488, 0x2490}, {0x24EA, 0x24EA}, {0x24F5, 0x24FD},
      {0x24FF, 0x24FF}, {0x2776, 0x277E}, {0x2780, 0x2788}, {0x278A, 0x2792}};
  const auto holds = [c](const auto& range) { return c >= range.first && c <= range.second; };
  return is_decimal(c) || std::any_of(std::begin(kRanges), std::end(kRanges), holds);
}

// Every run of cased characters starts with upper case and continues in lower case.
bool is_title(std::string_view text) {
  bool any = false, inside = false;
  for (; !text.empty(); text.remove_prefix(decode_utf8(text).length)) {
    const uint32_t c = decode_utf8(text).code_point;
    if (is_cased(c) && is_lower(c) != inside) return false;
    inside = is_cased(c);
    any |= inside;
  }
  return any;
}

bool is_identifier(std::string_view text) {
  if (text.empty() || is_digit(decode_utf8(text).code_point)) return false;
  return all_characters(text, is_word);
}

}  // namespace

bool is_python_space(uint32_t c) {
  return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}

bool in_class(std::string_view text, std::string_view name) {
  if (name == "isdigit") return all_characters(text, is_digit);
  if (name == "isdecimal") return all_characters(text, is_decimal);
  if (name == "isnumeric") return all_characters(text, is_numeric);
  if (name == "istitle") return is_title(text);
  if (name == "isidentifier") return is_identifier(text);
  if (name == "isascii" || name == "isprintable") {
    const auto fits = [&](uint32_t c) { return name == "isascii" ? c < 0x80 : is_printable(c); };
    return text.empty() || all_characters(text, fits);
  }
  if (name == "isalpha") return all_characters(text, is_alphabetic);
  if (name == "isspace") return all_characters(text, is_python_space);
  if (name == "isupper") return all_cased(text, is_upper);
  if (name == "islower") return all_cased(text, is_lower);
  return all_characters(text, [](uint32_t c) { return is_alphabetic(c) || is_numeric(c); });
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (; !text.empty(); text.remove_prefix(decode_utf8(text).length)) {
    const std::string_view character = text.substr(0, decode_utf8(text).length);
    const uint32_t c = decode_utf8(text).code_point;
    out += is_upper(c) ? to_lower(character) : is_lower(c) ? to_upper(character) : std::string(character);
  }
  return out;
}

}  // namespace fovea::text::jinja
