#pragma once
// Journal beside an output file that lets a later run continue: the settings, and for each finished row
// digests of the input row, of its request and of the result line.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::cli {

/// Settings that affect answers, other than rows and request flags: ("dtype", "float32"), ...
using RunSettings = std::vector<std::pair<std::string, std::string>>;

/// Digests of an input row's text, and of the request made from it and the flags.
struct RowKey {
  uint64_t row = 0, request = 0;
  bool operator==(const RowKey&) const = default;
};

struct RowEntry {
  RowKey key;
  uint64_t line = 0;  ///< digest of the result line
};

class RowJournal {
 public:
  RowJournal() = default;
  RowJournal(RowJournal&& other) noexcept { *this = std::move(other); }
  RowJournal& operator=(RowJournal&& other) noexcept;
  ~RowJournal();

  /// Opens the journal at `path`. A missing or invalid file gives no settings and no rows.
  static Result<RowJournal> open(const std::string& path);
  const RunSettings& settings() const { return settings_; }
  const std::vector<RowEntry>& rows() const { return rows_; }  ///< present when it was opened
  /// Discards the contents and starts with `settings`.
  Status begin(const RunSettings& settings);
  /// Discards all rows except the first `count` of rows().
  Status cut(size_t count);
  Status add(const RowEntry& entry);

 private:
  void read(std::string_view text);

  std::string path_;
  int fd_ = -1;
  RunSettings settings_;
  std::vector<RowEntry> rows_;
  int64_t head_ = 0, end_ = 0;  ///< sizes in bytes: settings, whole file
};

/// Appends `text` to `fd`, whose length is `end`; on failure leaves the file unchanged.
Status append_whole(int fd, std::string_view text, int64_t& end, const std::string& path);

}  // namespace fovea::cli
