#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

constexpr bool spells_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> chars;
  std::array<int16_t, kAlphabetEnd> bytes;

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t code_point = spells_itself(byte) ? byte : next++;
      append_utf8(code_point, chars[byte]);
      bytes[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

std::string_view byte_to_char(uint8_t byte) {
  return alphabet().chars[byte];
}

void append_byte_level(std::string_view bytes, std::string& out) {
  for (const char byte : bytes)
    out += byte_to_char(static_cast<uint8_t>(byte));
}

std::optional<uint8_t> char_to_byte(uint32_t code_point) {
  if (code_point >= kAlphabetEnd || alphabet().bytes[code_point] < 0) return std::nullopt;
  return static_cast<uint8_t>(alphabet().bytes[code_point]);
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  while (!token.empty()) {
    const Utf8Char c = decode_utf8(token);
    const std::optional<uint8_t> byte =
        c.status == Utf8Status::complete ? char_to_byte(c.code_point) : std::nullopt;
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    token.remove_prefix(c.length);
  }
  return bytes;
}

}  // namespace fovea::text
