#pragma once
// Names that users write are the same in any letter case.
#include <algorithm>
#include <string_view>

namespace fovea {

/// Equal but for the case of ASCII letters, whatever the locale.
inline bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace fovea
