#pragma once
// Stop strings over streamed text: holds back only what could still become a stop string.
#include <string>
#include <string_view>
#include <vector>

namespace fovea {

/// Feeds every byte to one Knuth-Morris-Pratt automaton a stop string. The first stop string to be complete
/// wins, the longest of those that end at the same byte: what is cut never depends on how the text was split
/// into pieces. With stop strings and pieces of valid UTF-8, what comes out is whole characters too.
class StopMatcher {
 public:
  /// `stops` non-empty strings. `include`: a match is part of the text.
  explicit StopMatcher(const std::vector<std::string>& stops, bool include = false);

  /// Appends to `out` what can't be part of a match any more. True when a stop string is complete: the text
  /// ends exactly before it (or with it), and nothing may be pushed after. One that is complete within text
  /// with `may_stop` false is only text; one that merely begins there counts.
  bool push(std::string_view text, std::string& out, bool may_stop = true);
  /// No more text comes: appends what was held back.
  void finish(std::string& out);

  /// The stop string that matched; empty before.
  const std::string& matched() const { return matched_; }

 private:
  struct Automaton {
    std::string pattern;
    std::vector<size_t> failure;  // failure[k]: longest proper border of the pattern's first k bytes
    size_t state = 0;             // longest prefix of the pattern that the text so far ends with
    size_t step(char byte) const;
  };
  std::vector<Automaton> automata_;
  bool include_;
  std::string held_;  // the longest suffix that is a proper prefix of some stop string
  std::string matched_;
};

}  // namespace fovea
