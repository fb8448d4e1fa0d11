#pragma once
// String helpers for headers and log lines.
#include <algorithm>
#include <string>
#include <string_view>

namespace fovea::server {

/// Equality that ignores the case of ASCII letters.
inline bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// `text` without leading and trailing spaces and tabs.
inline std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// For a log line: control characters and bytes beyond ASCII as \xNN, cut after `longest` bytes.
inline std::string escaped(std::string_view text, size_t longest = 200) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : text.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\\') {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return text.size() > longest ? out + "..." : out;
}

}  // namespace fovea::server
