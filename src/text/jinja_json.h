#pragma once
// JSON to template values and back.
#include <optional>
#include <string>

#include "text/jinja_runtime.h"
#include "text/json_value.h"

namespace fovea::text::jinja {

/// Objects become dicts in file order; strings are made valid UTF-8.
Value from_json(const Json& json);

struct JsonStyle {
  std::optional<std::string> indent;  ///< none: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};

/// As Python's json.dumps writes it; an error for values that JSON can't represent.
std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style);

}  // namespace fovea::text::jinja
