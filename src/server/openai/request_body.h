#pragma once
// A request's JSON, read field by field. The first thing that is wrong is kept; the reader that meets it goes
// on with what it had, so that a parse function asks once, at its end.
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

/// A token id each, and some room: no context is longer.
inline constexpr size_t kMaxJsonValues = (size_t{1} << 20) + 4096;
inline constexpr size_t kMaxFields = 256;  ///< of an object whose members have meanings

/// The body as an object. Refused: what is not JSON, deep nesting, more than kMaxJsonValues values, and
/// objects with a key twice, for nobody knows which was meant.
ApiResult<text::Json> parse_body(std::string_view body);

/// A value for a message: at most about 40 bytes; arrays and objects by their kind.
std::string shown(const text::Json& value);

/// While one lives, the members that readers on this thread look for, whether they are there or not: what a
/// parse function knows, for the test that holds the API's description against it.
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
  /// `object` must outlive the reader; `path` stands before names in errors: "stream_options". Keys are
  /// literals: those that were asked for are the ones that are known.
  explicit Fields(const text::Json& object, std::string path = {});

  /// A member, which is then known; null when it is absent or null.
  const text::Json* find(std::string_view key);
  /// The error of a member: "KEY is VALUE; it must be ALLOWED".
  void refuse(std::string_view key, const text::Json& value, std::string_view allowed);
  /// An error of any wording about a member.
  void fail(std::string_view key, std::string message);
  void fail(ApiError error);

  // Each reads a member if it is there; true when `out` was set.
  bool read(std::string_view key, bool& out);
  bool read(std::string_view key, float& out);
  bool read(std::string_view key, std::string& out);
  bool read(std::string_view key, int& out, int64_t low, int64_t high = INT32_MAX);
  /// An integer of 64 bits, signed or not; negative ones keep their bits.
  bool read_seed(std::string_view key, std::optional<uint64_t>& out);
  /// A list of at most `most` strings.
  bool read_strings(std::string_view key, std::vector<std::string>& out, size_t most);
  /// The same, or one string alone.
  bool read_string_or_strings(std::string_view key, std::vector<std::string>& out, size_t most);
  bool read_ids(std::string_view key, std::vector<int32_t>& out);

  /// After the last read: members that nobody asked for are judged by the table of fields.
  void close();
  /// Errors and unknown members of an object in this one, which is closed.
  void join(const Fields& nested);
  /// What is wrong: first of all a field that is not known, unless those are ignored.
  std::optional<ApiError> outcome(UnknownFields unknown) const;
  /// Paths of members that are not known, at most 16, in printable ASCII without commas.
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

/// An integer, also one that is written as 16.0 or 1e3.
std::optional<int64_t> as_integer(const text::Json& value);
/// A list of token ids, 0 to INT32_MAX. `path` names it in errors.
ApiResult<std::vector<int32_t>> read_id_list(const text::Json& value, const std::string& path);

}  // namespace fovea::openai
