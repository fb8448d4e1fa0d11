#include "text/utf8.h"

namespace fovea::text {
namespace {

// Table 3-7 of the Unicode standard: what may follow each first byte. `length` 0 marks bytes that can't
// start.
struct FirstByte {
  uint32_t length;
  uint8_t second_low, second_high;
};

FirstByte classify(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Char decode_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const FirstByte first = classify(byte(0));
  if (first.length == 1) return {byte(0), 1, Utf8Status::complete};
  if (first.length == 0) return {kReplacement, 1, Utf8Status::invalid};
  uint32_t code_point = byte(0) & (0x7Fu >> first.length);
  for (uint32_t i = 1; i < first.length; ++i) {
    if (i == text.size()) return {kReplacement, i, Utf8Status::incomplete};
    const uint8_t low = i == 1 ? first.second_low : uint8_t{0x80};
    const uint8_t high = i == 1 ? first.second_high : uint8_t{0xBF};
    if (byte(i) < low || byte(i) > high) return {kReplacement, i, Utf8Status::invalid};
    code_point = code_point << 6 | (byte(i) & 0x3Fu);
  }
  return {code_point, first.length, Utf8Status::complete};
}

size_t previous_character(std::string_view text, size_t pos) {
  size_t begin = pos - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
    --begin;
  return begin;
}

void append_utf8(uint32_t code_point, std::string& out) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) code_point = kReplacement;
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    if (static_cast<uint8_t>(text[0]) < 0x80) {
      text.remove_prefix(1);
      continue;
    }
    const Utf8Char c = decode_utf8(text);
    if (c.status != Utf8Status::complete) return false;
    text.remove_prefix(c.length);
  }
  return true;
}

size_t append_complete_utf8(std::string_view bytes, std::string& out) {
  size_t pos = 0, good = 0;  // [good, pos) is valid and not yet copied
  while (pos < bytes.size()) {
    if (static_cast<uint8_t>(bytes[pos]) < 0x80) {
      ++pos;
      continue;
    }
    const Utf8Char c = decode_utf8(bytes.substr(pos));
    if (c.status == Utf8Status::incomplete) break;
    if (c.status == Utf8Status::invalid) {
      out.append(bytes, good, pos - good).append(kReplacementUtf8);
      good = pos + c.length;
    }
    pos += c.length;
  }
  out.append(bytes, good, pos - good);
  return pos;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (append_complete_utf8(text, out) < text.size()) out += kReplacementUtf8;
  return out;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text)
    count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace fovea::text
