#pragma once
// Checked access to the keys of a JSON file; every error names the file.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result.h"

namespace fovea {

/// Parses `text` as a JSON object; `file` is for messages.
Result<nlohmann::json> parse_json_object(std::string_view text, const std::string& file);

/// Reads keys of one JSON object. Keeps the first error; later reads return their fallback.
class Fields {
 public:
  Fields(const nlohmann::json& object, std::string file, Status& status)
      : object_(object), file_(std::move(file)), status_(status) {}

  const std::string& file() const { return file_; }
  bool ok() const { return status_.ok(); }
  /// Fields of a nested object; errors go to the same status.
  Fields nested(const char* key) const { return Fields(*find(key), file_ + ": " + key, status_); }

  /// Null when the key is absent or null.
  const nlohmann::json* find(const char* key) const;
  bool has(const char* key) const;
  /// Whether the key is this string.
  bool is(const char* key, std::string_view text) const;

  /// "FILE: KEY is VALUE; HELP"
  void refuse(const char* key, const std::string& help, ErrorCode code = ErrorCode::invalid_argument);

  int64_t integer(const char* key, int64_t low, int64_t high, std::optional<int64_t> fallback = {});
  int small(const char* key, int64_t low, int64_t high, std::optional<int64_t> fallback = {}) {
    return static_cast<int>(integer(key, low, high, fallback));
  }
  double number(const char* key, double low, double high, std::optional<double> fallback = {});
  bool boolean(const char* key, bool fallback);
  std::string string(const char* key, const std::string& fallback);
  /// An id or a list of ids; empty when absent.
  std::vector<int32_t> token_ids(const char* key);
  std::optional<float> optional_number(const char* key, double low, double high) {
    if (!find(key)) return std::nullopt;
    return static_cast<float>(number(key, low, high));
  }

 private:
  const nlohmann::json& object_;
  std::string file_;
  Status& status_;
};

}  // namespace fovea
