#pragma once
// What finished rows were computed from, beside the file that has them, so that a later run can go on: the
// settings, and for each row a digest of it, of its request and of its line.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result.h"

namespace fovea::cli {

/// What changes answers beside the rows and the flags of requests: ("dtype", "float32"), ...
using RunSettings = std::vector<std::pair<std::string, std::string>>;

/// Digests of an input row as it was written, and of what it and the flags ask for.
struct RowKey {
  uint64_t row = 0, request = 0;
  bool operator==(const RowKey&) const = default;
};

struct RowEntry {
  RowKey key;
  uint64_t line = 0;  ///< of the result
};

class RowJournal {
 public:
  RowJournal() = default;
  RowJournal(RowJournal&& other) noexcept { *this = std::move(other); }
  RowJournal& operator=(RowJournal&& other) noexcept;
  ~RowJournal();

  /// The journal at `path`. Where there is none or it is not one, it has no settings and no rows.
  static Result<RowJournal> open(const std::string& path);
  const RunSettings& settings() const { return settings_; }
  const std::vector<RowEntry>& rows() const { return rows_; }  ///< that were there when it was opened
  /// Forgets what is there and begins with `settings`.
  Status begin(const RunSettings& settings);
  /// Forgets all rows but the first `count` of rows().
  Status cut(size_t count);
  Status add(const RowEntry& entry);

 private:
  void read(std::string_view text);

  std::string path_;
  int fd_ = -1;
  RunSettings settings_;
  std::vector<RowEntry> rows_;
  int64_t head_ = 0, end_ = 0;  ///< bytes of the settings, and of all
};

/// Appends `text` to `fd`, whose length is `end`, or leaves the file as it was.
Status append_whole(int fd, std::string_view text, int64_t& end, const std::string& path);

}  // namespace fovea::cli
