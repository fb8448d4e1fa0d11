#include "text/unicode.h"

#define UTF8PROC_STATIC
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "text/utf8.h"

namespace fovea::text {
namespace {

int category(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

// The first character that each form can change: combining marks; the first that decomposes; the first with a
// compatibility decomposition.
uint32_t first_affected(NormalForm form) {
  switch (form) {
    case NormalForm::nfc: return 0x300;
    case NormalForm::nfd: return 0xC0;
    case NormalForm::nfkc:
    case NormalForm::nfkd: return 0xA0;
  }
  return 0;
}

// Whether the form leaves every character alone: those below `first`, and CJK ideographs.
bool all_inert(std::string_view text, uint32_t first) {
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    if (c.code_point >= first && !(c.code_point >= 0x3400 && c.code_point < 0xA000)) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

struct Decomposed {
  utf8proc_int32_t code_point;
  utf8proc_propval_t combining_class;
  size_t position;
};

// utf8proc orders marks by swapping neighbours, which is quadratic in the length of a run of marks; sorting
// each run by class and position gives the same order.
void order_marks(std::vector<Decomposed>& chars) {
  for (size_t begin = 0; begin < chars.size();) {
    size_t end = begin + 1;
    if (chars[begin].combining_class != 0) {
      while (end < chars.size() && chars[end].combining_class != 0)
        ++end;
      std::sort(chars.begin() + static_cast<std::ptrdiff_t>(begin),
                chars.begin() + static_cast<std::ptrdiff_t>(end),
                [](const Decomposed& a, const Decomposed& b) {
                  return std::pair(a.combining_class, a.position) < std::pair(b.combining_class, b.position);
                });
    }
    begin = end;
  }
}

}  // namespace

std::string_view general_category(uint32_t code_point) {
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(code_point));
}

bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t leading_white_space(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text.substr(pos));
    if (!is_white_space(c.code_point)) break;
    pos += c.length;
  }
  return pos;
}

size_t trailing_white_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = previous_character(text, end);
    if (!is_white_space(decode_utf8(text.substr(begin, end - begin)).code_point)) break;
    end = begin;
  }
  return text.size() - end;
}

bool is_numeric(uint32_t code_point) {
  const int c = category(code_point);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_word(uint32_t code_point) {
  const int c = category(code_point);
  // Symbols with the property Other_Alphabetic: circled and squared letters.
  const bool letter_symbol =
      (code_point >= 0x24B6 && code_point <= 0x24E9) || (code_point >= 0x1F130 && code_point <= 0x1F149) ||
      (code_point >= 0x1F150 && code_point <= 0x1F169) || (code_point >= 0x1F170 && code_point <= 0x1F189);
  const bool joiner = code_point == 0x200C || code_point == 0x200D;
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ND) || c == UTF8PROC_CATEGORY_NL ||
         c == UTF8PROC_CATEGORY_PC || letter_symbol || joiner;
}

bool is_mark(uint32_t code_point) {
  const int c = category(code_point);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(uint32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_MN;
}

bool is_punctuation(uint32_t code_point) {
  if (code_point < 0x80) {
    return (code_point >= 0x21 && code_point <= 0x2F) || (code_point >= 0x3A && code_point <= 0x40) ||
           (code_point >= 0x5B && code_point <= 0x60) || (code_point >= 0x7B && code_point <= 0x7E);
  }
  const int c = category(code_point);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_control_or_format(uint32_t code_point) {
  const int c = category(code_point);
  return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

bool is_printable(uint32_t code_point) {
  const int c = category(code_point);
  return code_point == ' ' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_SO);
}

bool is_alphabetic(uint32_t code_point) {
  const int c = category(code_point);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_upper(uint32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(uint32_t code_point) {
  return category(code_point) == UTF8PROC_CATEGORY_LL;
}

bool is_cased(uint32_t code_point) {
  const int c = category(code_point);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

namespace {

enum class Case { upper, lower, title };

void append_cased(uint32_t code_point, Case form, std::string& out) {
  const auto c = static_cast<utf8proc_int32_t>(code_point);
  if (code_point == 0xDF && form != Case::lower) {
    out += form == Case::upper ? "SS" : "Ss";
    return;
  }
  if (code_point == 0x130 && form == Case::lower) {
    out += "i\u0307";
    return;
  }
  const utf8proc_int32_t mapped = form == Case::upper   ? utf8proc_toupper(c)
                                  : form == Case::lower ? utf8proc_tolower(c)
                                                        : utf8proc_totitle(c);
  append_utf8(static_cast<uint32_t>(mapped), out);
}

// `form_of(code_point, is_first)` chooses the case of each character.
template <class FormOf>
std::string map_case(std::string_view text, FormOf form_of) {
  std::string out;
  out.reserve(text.size());
  for (bool first = true; !text.empty(); first = false) {
    const Utf8Char c = decode_utf8(text);
    append_cased(c.code_point, form_of(c.code_point, first), out);
    text.remove_prefix(c.length);
  }
  return out;
}

}  // namespace

std::string to_upper(std::string_view text) {
  return map_case(text, [](uint32_t, bool) { return Case::upper; });
}

std::string to_lower(std::string_view text) {
  return map_case(text, [](uint32_t, bool) { return Case::lower; });
}

std::string to_title(std::string_view text) {
  bool in_word = false;
  return map_case(text, [&](uint32_t c, bool) {
    const Case form = in_word ? Case::lower : Case::title;
    in_word = is_cased(c);
    return form;
  });
}

std::string to_capitalized(std::string_view text) {
  return map_case(text, [](uint32_t, bool first) { return first ? Case::title : Case::lower; });
}

namespace {

// utf8proc takes a set of flags as one of its enumerators.
utf8proc_option_t options_of(NormalForm form) {
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const int flags = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                    (compatible ? UTF8PROC_COMPAT : 0);
  return static_cast<utf8proc_option_t>(flags);  // NOLINT(*EnumCastOutOfRange)
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (all_inert(text, first_affected(form))) return std::string(text);
  const utf8proc_option_t options = options_of(form);
  std::vector<Decomposed> chars;
  chars.reserve(text.size());
  int boundary = 0;
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    utf8proc_int32_t parts[32];  // the longest decomposition, of U+FDFA, has 18
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code_point), parts,
                                                       std::size(parts), options, &boundary);
    for (utf8proc_ssize_t i = 0; i < n; ++i) {
      chars.push_back({parts[i], utf8proc_get_property(parts[i])->combining_class, chars.size()});
    }
    text.remove_prefix(c.length);
  }
  order_marks(chars);
  std::vector<utf8proc_int32_t> code_points(chars.size());
  std::transform(chars.begin(), chars.end(), code_points.begin(),
                 [](const Decomposed& d) { return d.code_point; });
  const utf8proc_ssize_t n = utf8proc_normalize_utf32(
      code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()), options);
  std::string out;
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    append_utf8(static_cast<uint32_t>(code_points[i]), out);
  return out;
}

size_t first_grapheme(std::string_view text) {
  if (text.empty()) return 0;
  // Two ASCII characters form no cluster, except CR LF.
  if (text.size() > 1 && static_cast<uint8_t>(text[0]) < 0x80 && static_cast<uint8_t>(text[1]) < 0x80 &&
      text[0] != '\r') {
    return 1;
  }
  utf8proc_int32_t state = 0;
  Utf8Char c = decode_utf8(text);
  size_t end = c.length;
  while (end < text.size()) {
    const Utf8Char next = decode_utf8(text.substr(end));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code_point),
                                         static_cast<utf8proc_int32_t>(next.code_point), &state)) {
      break;
    }
    end += next.length;
    c = next;
  }
  return end;
}

}  // namespace fovea::text
