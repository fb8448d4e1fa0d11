#pragma once
// A guard before the JSON library: it parses any depth, but copies and prints a value by recursion.
#include <string_view>

namespace fovea {

inline constexpr int kMaxJsonDepth = 100;  ///< no configuration or request nests nearly as deep

/// Whether the brackets of a JSON text, outside its strings, nest deeper than `limit`. Of a text that is not
/// JSON the answer is of no use, and the parser refuses it.
inline bool json_nests_deeper(std::string_view text, int limit = kMaxJsonDepth) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > limit) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace fovea
