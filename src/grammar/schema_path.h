#pragma once
// Paths of schemas in messages.
#include <string>
#include <string_view>

#include "base/printable.h"
#include "fovea/result.h"
#include "text/json_value.h"

namespace fovea::grammar {

/// The path of a member, as a JSON pointer.
inline std::string child(const std::string& path, std::string_view name) {
  std::string out = path + "/";
  for (const char c : printable(name, 60))
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

inline std::string child(const std::string& path, std::string_view name, size_t index) {
  return child(path, name) + "/" + std::to_string(index);
}

inline Error refused(const std::string& path, std::string_view keyword, const std::string& why) {
  return invalid("the schema's " + child(path, keyword) + " " + why);
}

inline bool is_schema(const text::Json& value) {
  return value.object() || value.boolean();
}

}  // namespace fovea::grammar
