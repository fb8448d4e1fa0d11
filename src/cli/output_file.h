#pragma once
// Where rows go: a file that appears whole or not at all, or a stream.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "fovea/result.h"

namespace fovea::cli {

/// A text file that appears under its name only when commit() succeeds; dropped otherwise, by SIGINT and the
/// like too. At most one at a time. "" and "-" are standard output; devices and pipes are written as they
/// are.
class OutputFile {
 public:
  /// Refused where `path` is the file that `input` names ("-" = standard input, "" = none): it would be lost.
  static Result<OutputFile> open(const std::string& path, const std::string& input = {});
  OutputFile(OutputFile&& other) noexcept
      : name_(std::move(other.name_)),
        target_(std::move(other.target_)),
        temporary_(std::exchange(other.temporary_, {})),
        file_(std::move(other.file_)) {}
  ~OutputFile();
  void line(const std::string& text);
  Status commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  OutputFile() = default;
  std::FILE* stream() const { return file_ ? file_.get() : stdout; }
  Status open_temporary();

  std::string name_ = "standard output";  // for messages
  std::string target_, temporary_;        // temporary_ is empty when nothing is to be renamed or removed
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace fovea::cli
