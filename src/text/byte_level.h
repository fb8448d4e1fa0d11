#pragma once
// The byte-level alphabet of GPT-2: each byte is spelled as one printable character, so that a vocabulary of
// text strings can hold any bytes. Printable Latin-1 bytes spell themselves; the other 68 take U+0100.. in
// byte order.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fovea::text {

/// UTF-8 spelling of a byte; one or two bytes.
std::string_view byte_to_char(uint8_t byte);

/// Appends the spelling of `bytes` to `out`.
void append_byte_level(std::string_view bytes, std::string& out);

/// The byte that a character of the alphabet spells.
std::optional<uint8_t> char_to_byte(uint32_t code_point);

/// The bytes that a vocabulary entry spells; nullopt when a character is outside the alphabet.
std::optional<std::string> spelled_bytes(std::string_view token);

}  // namespace fovea::text
