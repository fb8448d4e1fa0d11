#pragma once
// Matches stop strings in streamed text; holds back only text that may still become a stop string.
#include <string>
#include <string_view>
#include <vector>

namespace fovea {

/// One Knuth-Morris-Pratt automaton per stop string. The stop string that completes first wins, the longest
/// of those that end at the same byte, so the cut never depends on how the text is split into pieces. If stop
/// strings and pieces are valid UTF-8, the output consists of whole characters too.
class StopMatcher {
 public:
  /// `stops`: non-empty strings. `include`: a match is kept in the text.
  explicit StopMatcher(const std::vector<std::string>& stops, bool include = false);

  /// Appends to `out` what cannot be part of a match any more. True when a stop string is complete: the text
  /// ends exactly before it (or with it), and nothing may be pushed afterwards. With `may_stop` false, a stop
  /// string that completes in `text` is ignored; one that only begins there still counts.
  bool push(std::string_view text, std::string& out, bool may_stop = true);
  /// End of text: appends what was held back.
  void finish(std::string& out);

  /// The stop string that matched; empty before a match.
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
