#pragma once
// Where rows go: a file that appears when all of them are there, or a stream.
#include <cstdint>
#include <memory>
#include <string>

#include "cli/row_journal.h"
#include "fovea/result.h"

namespace fovea::cli {

/// What the flags say of it.
struct OutputFlags {
  std::string output;   ///< "" and "-" = standard output
  bool resume = false;  ///< go on with what a run that was ended has left
};

/// Lines of text. A file appears under its name only when commit() succeeds. Until then its rows are in
/// FILE.partial, whole lines in order, and FILE.partial.journal says what they were computed from: an error,
/// a signal, a full disk or a crash leaves both, and a run with `resume` goes on with them. Without a row
/// nothing is left. Devices and pipes are written as they are.
class OutputFile {
 public:
  /// Refused where it is the file that `input` names ("-" = standard input, "" = none), which would be lost,
  /// where another run writes it, and, without `resume`, where there are rows of a run that was ended.
  static Result<OutputFile> open(const OutputFlags& flags, const std::string& input = {});
  OutputFile(OutputFile&&) noexcept;
  ~OutputFile();

  /// Before the first row. Rows that are kept must have been computed with the same settings. Without it
  /// nothing is kept but by commit(): for a file that is no list of rows.
  Status begin(const RunSettings& settings);
  /// Rows that are there already, of an earlier run. Those of the input are not to be computed again, if
  /// check_kept() finds that they are the same.
  int64_t kept() const;
  Status check_kept(int64_t index, RowKey key, const std::string& name) const;
  /// The error where the input ends after `rows`, before kept().
  Error more_kept(int64_t rows) const;
  /// How many rows there will be, for messages; 0 = unknown.
  void expect(int64_t rows);
  /// A whole line or, where that fails, nothing.
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
