#pragma once
// Lines that a person types at a terminal: edited, recalled, pasted as one piece. libedit does the work.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace fovea::cli {

class LineEditor {
 public:
  /// Null where standard input and error are no terminal that lines can be edited on (TERM is dumb, or
  /// unknown to terminfo). `words` are what the tabulator completes at the start of a line.
  static std::unique_ptr<LineEditor> create(std::vector<std::string> words);
  virtual ~LineEditor() = default;

  enum class End { entered, interrupted, closed };
  struct Line {
    std::string text;  ///< may have newlines: pasted, or typed by Alt-Enter
    End end = End::entered;
  };
  /// Ctrl-C (`interrupt`) clears what is typed; Ctrl-D on an empty line closes.
  virtual Line read(const char* prompt, InterruptFlag& interrupt) = 0;
  /// What the up arrow brings back; the oldest beyond `kHistoryEntries` are forgotten.
  virtual void remember(const std::string& text) = 0;

  static constexpr int kHistoryEntries = 1000;
};

}  // namespace fovea::cli
