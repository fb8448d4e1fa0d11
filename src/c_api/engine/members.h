#pragma once
// Typed members of a JSON object that a program gave: the first error is kept, and a member that nothing
// asked for is refused with the list of those that were.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"

namespace fovea::c_api {

class Members {
 public:
  /// `what` names the object in errors: "options". A null `text` is an object without members. Errors:
  /// invalid JSON, a member given twice, no object.
  static Result<Members> parse(const char* text, std::string what);

  /// The member, marked as known; null when it is absent or null. `key` is a literal.
  const nlohmann::json* find(const char* key);
  /// Whether the member is there and null, where that differs from absent; marked as known.
  bool is_null(const char* key);
  /// Keeps "WHAT: KEY is VALUE; it must be ALLOWED".
  void refuse(const char* key, std::string_view allowed);
  /// Keeps an error of a member's value that another parser found.
  void fail(Error error);

  // Each sets `out` if the member is there.
  void read(const char* key, bool& out);
  void read(const char* key, std::string& out);
  void read(const char* key, float& out);
  void read(const char* key, double& out, double low, double high);
  void read(const char* key, int& out, int64_t low, int64_t high);
  void read(const char* key, std::optional<int>& out, int64_t low, int64_t high);
  void read(const char* key, std::optional<int64_t>& out, int64_t low, int64_t high);
  void read(const char* key, std::optional<bool>& out);
  /// 0 to 2^64 - 1; negative numbers of 64 bits keep their bits.
  void read_seed(const char* key, uint64_t& out);
  /// A list of strings; with `one_too`, also a single string.
  void read_strings(const char* key, std::vector<std::string>& out, bool one_too);
  /// A list of 32-bit integers; true when it is there.
  bool read_ids(const char* key, std::vector<int32_t>& out);

  /// Call after the last read: the first error, or that of a member that nothing read.
  Status close() const;

 private:
  Members(nlohmann::json object, std::string what) : object_(std::move(object)), what_(std::move(what)) {}

  std::optional<int64_t> integer(const char* key, int64_t low, int64_t high);

  nlohmann::json object_;
  std::string what_;
  std::vector<std::string_view> known_;
  Status status_;
};

}  // namespace fovea::c_api
