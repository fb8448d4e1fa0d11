#pragma once
// Unicode character data (utf8proc) that the pipeline needs beyond regular expressions.
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::text {

/// The general category's short name: "Lu", "Nd", ...; "Cn" where none is assigned.
std::string_view general_category(uint32_t code_point);
bool is_white_space(uint32_t code_point);        ///< the White_Space property
bool is_numeric(uint32_t code_point);            ///< general category Nd, Nl or No
bool is_word(uint32_t code_point);               ///< \w of UTS #18: alphabetic, marks, Nd, Pc, joiners
bool is_mark(uint32_t code_point);               ///< general category M*
bool is_nonspacing_mark(uint32_t code_point);    ///< general category Mn
bool is_punctuation(uint32_t code_point);        ///< general category P*, or punctuation or symbol of ASCII
bool is_control_or_format(uint32_t code_point);  ///< general category Cc, Cf or Co

// Bytes of white space at the ends of valid UTF-8.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);

bool is_printable(uint32_t code_point);   ///< as Python's str.isprintable
bool is_alphabetic(uint32_t code_point);  ///< general category L*
bool is_cased(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);

// Simple case mappings of valid UTF-8 (one character to one, except that U+00DF becomes SS and U+0130 becomes
// i with a dot above).
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        ///< every word, as Python's str.title
std::string to_capitalized(std::string_view text);  ///< first character upper, the rest lower

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// A Unicode normalization form of valid UTF-8, in O(n log n) for any input.
std::string to_normal_form(std::string_view text, NormalForm form);

/// Bytes of the extended grapheme cluster that valid UTF-8 `text` starts with; 0 for an empty text.
size_t first_grapheme(std::string_view text);

}  // namespace fovea::text
