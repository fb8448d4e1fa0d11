#pragma once
// JSON as a small tree with objects in file order. One parser for tokenizer files and template variables;
// nlohmann-json stays inside json_value.cc.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::text {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;
  /// An integer beyond int64: its approximate value and its exact digits.
  struct LargeInteger {
    double value = 0;
    std::string digits;
  };

  Json() = default;
  template <class T>
  explicit Json(T value) : value_(std::in_place_type<T>, std::move(value)) {}
  template <class T>
  void set(T value) {
    value_.template emplace<T>(std::move(value));
  }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  /// Also for a large integer.
  const double* real() const {
    const LargeInteger* large = large_integer();
    return large ? &large->value : std::get_if<double>(&value_);
  }
  const LargeInteger* large_integer() const { return std::get_if<LargeInteger>(&value_); }
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }

  /// Member `key` of an object: the last one of that name, as Python reads it; null when there is none.
  const Json* find(std::string_view key) const;

  /// For error messages: a scalar as written, "[...]" or "{...}"; at most about 60 bytes.
  std::string describe() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, LargeInteger, std::string, Array, Object> value_;
};

/// Parses one JSON text. `what` names it in errors ("tokenizer.json"). Nesting deeper than 100 levels is an
/// error; integers beyond int64 are real numbers that keep their digits.
Result<Json> parse_json(std::string_view text, std::string_view what);

// Typed members of an object. A missing member or null gives the fallback; another type is an error that
// names `path`.key and the value.
Result<bool> bool_field(const Json& object, std::string_view path, std::string_view key, bool fallback);
Result<std::string> string_field(const Json& object, std::string_view path, std::string_view key,
                                 std::string_view fallback);

}  // namespace fovea::text
