#pragma once
// A nesting limit for the JSON library, which parses any depth but copies and prints values recursively.
#include <string_view>

namespace fovea {

inline constexpr int kMaxJsonDepth = 100;  ///< far deeper than any configuration or request

/// Whether the brackets of a JSON text, outside strings, nest deeper than `limit`. Meaningless for invalid
/// JSON, which the parser rejects.
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
