#pragma once
// Unicode character data (utf8proc) that the pipeline needs beyond regular expressions.
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::text {

bool is_white_space(uint32_t code_point);  ///< the White_Space property
bool is_numeric(uint32_t code_point);      ///< general category Nd, Nl or No
bool is_word(uint32_t code_point);         ///< \w: letters, marks, decimal digits, connector punctuation

bool is_printable(uint32_t code_point);   ///< as Python's str.isprintable
bool is_alphabetic(uint32_t code_point);  ///< general category L*
bool is_cased(uint32_t code_point);
bool is_upper(uint32_t code_point);
bool is_lower(uint32_t code_point);

// Simple case mappings of valid UTF-8 (one character to one, except that U+00DF becomes SS).
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        ///< every word, as Python's str.title
std::string to_capitalized(std::string_view text);  ///< first character upper, the rest lower

/// Normalization Form C of valid UTF-8, in O(n log n) for any input.
std::string to_nfc(std::string_view text);

}  // namespace fovea::text
