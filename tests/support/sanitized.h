#pragma once

#include <initializer_list>
#include <vector>

namespace fovea::test {

#ifdef FOVEA_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// All of the cases, in sanitizer builds the last `count`: there every path runs once, and release builds
/// compare the answers of all combinations.
template <class T>
std::vector<T> cases(std::initializer_list<T> all, size_t count) {
  return {kSanitized && count < all.size() ? all.end() - count : all.begin(), all.end()};
}

}  // namespace fovea::test
