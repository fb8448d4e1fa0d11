#pragma once
// Case-insensitive comparison of user-supplied names.
#include <algorithm>
#include <string_view>

namespace fovea {

/// Equality ignoring the case of ASCII letters, independent of the locale.
inline bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace fovea
