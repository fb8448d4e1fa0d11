#pragma once
// Line input at a terminal with editing, history and bracketed paste, based on libedit.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace fovea::cli {

class LineEditor {
 public:
  /// Null if standard input and error are not a terminal that supports editing (TERM is dumb or unknown to
  /// terminfo). `words` are completed with Tab at the start of a line.
  static std::unique_ptr<LineEditor> create(std::vector<std::string> words);
  virtual ~LineEditor() = default;

  enum class End { entered, interrupted, closed };
  struct Line {
    std::string text;  ///< may contain newlines: pasted, or typed with Alt-Enter
    End end = End::entered;
  };
  /// Ctrl-C (`interrupt`) clears the input; Ctrl-D on an empty line closes.
  virtual Line read(const char* prompt, InterruptFlag& interrupt) = 0;
  /// Adds an entry to the history; entries beyond `kHistoryEntries` are dropped, oldest first.
  virtual void remember(const std::string& text) = 0;

  static constexpr int kHistoryEntries = 1000;
};

}  // namespace fovea::cli
