#pragma once
// UTF-8 as Unicode 15 section 3.9 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::text {

constexpr uint32_t kReplacement = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

enum class Utf8Status : uint8_t {
  complete,    ///< a whole character
  invalid,     ///< `length` bytes are a maximal subpart of an ill-formed sequence: one U+FFFD
  incomplete,  ///< the text ends inside a sequence that is well formed so far
};

struct Utf8Char {
  uint32_t code_point = kReplacement;
  uint32_t length = 0;  ///< bytes; at least 1 unless the text is empty
  Utf8Status status = Utf8Status::incomplete;
};

/// The character at the start of `text`, which must not be empty.
Utf8Char decode_utf8(std::string_view text);

/// Start of the character that ends before byte `pos` of valid UTF-8; `pos` > 0.
size_t previous_character(std::string_view text, size_t pos);

/// Appends one code point; surrogates and values above U+10FFFF become U+FFFD.
void append_utf8(uint32_t code_point, std::string& out);

bool is_valid_utf8(std::string_view text);

/// Copy of `text` with every ill-formed maximal subpart replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

/// Appends the complete characters of `bytes` to `out`, ill-formed ones as U+FFFD, and returns how many bytes
/// were used; the rest (at most 3) is the well-formed start of a character that needs more bytes.
size_t append_complete_utf8(std::string_view bytes, std::string& out);

/// Number of code points of valid UTF-8.
size_t count_code_points(std::string_view text);

}  // namespace fovea::text
