#pragma once
// A reader for a request's JSON, field by field. It keeps the first error and continues with the previous
// values, so that a parse function checks for an error once, at its end.
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/error.h"
#include "server/openai/field_table.h"
#include "text/json_value.h"

namespace fovea::openai {

/// The longest supported context as token ids (2^20), plus a margin for other fields.
inline constexpr size_t kMaxJsonValues = (size_t{1} << 20) + 4096;
inline constexpr size_t kMaxFields = 256;  ///< of an object with defined members

/// The body as an object. Refused: invalid JSON, deep nesting, more than kMaxJsonValues values, and objects
/// with duplicate keys, which are ambiguous.
ApiResult<text::Json> parse_body(std::string_view body);

/// A value as text for an error message: at most about 40 bytes; "an array", "an object".
std::string shown(const text::Json& value);

/// While it lives, records the members that readers on this thread look for, whether present or not. A test
/// compares the API's description with them.
class LookedFor {
 public:
  LookedFor();
  ~LookedFor();
  const std::set<std::string>& paths() const { return paths_; }

 private:
  friend class Fields;
  std::set<std::string> paths_;
  LookedFor* outer_;
};

class Fields {
 public:
  /// `object` must outlive the reader; `path` prefixes names in errors: "stream_options". Keys must be
  /// literals: the reader keeps views of those it was called with, which are the known fields.
  explicit Fields(const text::Json& object, std::string path = {});

  /// Returns a member and marks it as known; null when it is absent or null.
  const text::Json* find(std::string_view key);
  /// Sets a member's error: "KEY is VALUE; it must be ALLOWED".
  void refuse(std::string_view key, const text::Json& value, std::string_view allowed);
  /// Sets a member's error, with any wording.
  void fail(std::string_view key, std::string message);
  void fail(ApiError error);

  // Each reads a member if it is present; true when `out` was set.
  bool read(std::string_view key, bool& out);
  bool read(std::string_view key, float& out);
  bool read(std::string_view key, std::string& out);
  bool read(std::string_view key, int& out, int64_t low, int64_t high = INT32_MAX);
  /// A 64-bit integer, signed or unsigned; negative values keep their bits.
  bool read_seed(std::string_view key, std::optional<uint64_t>& out);
  /// A list of at most `most` strings.
  bool read_strings(std::string_view key, std::vector<std::string>& out, size_t most);
  /// The same, or a single string.
  bool read_string_or_strings(std::string_view key, std::vector<std::string>& out, size_t most);
  bool read_ids(std::string_view key, std::vector<int32_t>& out);

  /// Call after the last read: checks members that were not read against the field table (`with_table`:
  /// false = all of them are unknown).
  void close(bool with_table = true);
  /// Adds a path to unknown().
  void ignore(std::string path);
  /// Takes over errors and unknown members of a nested, closed object.
  void join(const Fields& nested);
  /// The error, if any; an unknown field has precedence unless those are ignored.
  std::optional<ApiError> outcome(UnknownFields unknown) const;
  /// Paths of unknown members, at most 16, in printable ASCII without commas.
  const std::vector<std::string>& unknown() const { return unknown_; }
  const std::vector<std::string_view>& asked() const { return asked_; }
  /// "messages[0].role"
  std::string path_of(std::string_view key) const;
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const text::Json::Object* members_;
  std::string path_;
  std::vector<bool> known_;
  std::vector<std::string_view> asked_;
  std::optional<ApiError> error_, first_unknown_;
  std::vector<std::string> unknown_;
};

/// An integer; 16.0 and 1e3 are accepted.
std::optional<int64_t> as_integer(const text::Json& value);
/// A list of token ids, 0 to INT32_MAX. `path` names it in errors.
ApiResult<std::vector<int32_t>> read_id_list(const text::Json& value, const std::string& path);

}  // namespace fovea::openai
