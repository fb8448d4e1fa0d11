#pragma once
// Destination of rows: a file that appears when it is complete, or a stream.
#include <cstdint>
#include <memory>
#include <string>

#include "cli/row_journal.h"
#include "fovea/result_fwd.h"

namespace fovea::cli {

/// The output flags.
struct OutputFlags {
  std::string output;   ///< "" and "-" = standard output
  bool resume = false;  ///< continue from the rows of an interrupted run
};

/// Lines of text. A file appears under its name only when commit() succeeds. Until then its rows are in
/// FILE.partial, whole lines in order, and FILE.partial.journal records what they were computed from. An
/// error, a signal, a full disk or a crash leaves both, and a run with `resume` continues from them. Without
/// any row no file is left. Devices and pipes are written directly.
class OutputFile {
 public:
  /// An error if the output is the file that `input` names ("-" = standard input, "" = none), which would be
  /// overwritten; if another run is writing it; or, without `resume`, if rows of an interrupted run exist.
  static Result<OutputFile> open(const OutputFlags& flags, const std::string& input = {});
  OutputFile(OutputFile&&) noexcept;
  ~OutputFile();

  /// Call before the first row. Kept rows must have been computed with the same settings. Without begin()
  /// only commit() keeps anything, as for a file that is not a list of rows.
  Status begin(const RunSettings& settings);
  /// Number of rows from an earlier run. The caller need not compute these input rows again if check_kept()
  /// finds them unchanged.
  int64_t kept() const;
  Status check_kept(int64_t index, RowKey key, const std::string& name) const;
  /// The error if the input ends after `rows`, before kept().
  Error more_kept(int64_t rows) const;
  /// The expected number of rows, for messages; 0 = unknown.
  void expect(int64_t rows);
  /// Writes a whole line or, on failure, nothing.
  Status line(const std::string& text, RowKey key = {});
  Status commit();

 private:
  struct Stream;
  struct Rows;

  OutputFile();
  std::unique_ptr<Stream> stream_;  // one of the two
  std::unique_ptr<Rows> rows_;
};

}  // namespace fovea::cli
