#pragma once
// Incremental token counts of a sequence, for penalties.
#include <cstdint>
#include <span>
#include <vector>

namespace fovea {

/// A function of the tokens alone, so preemption does not change the counts.
class TokenCounts {
 public:
  struct Entry {
    int32_t token = 0;
    int32_t answered = 0;  ///< occurrences after the prompt; 0 = in the prompt only
  };

  /// `with_prompt`: prompt tokens get entries too.
  explicit TokenCounts(bool with_prompt = false) : with_prompt_(with_prompt) {}

  /// Counts the tokens that are new since the last call; `tokens` only ever grows at its end.
  void update(std::span<const int32_t> tokens, size_t prompt_len);

  /// One per distinct token, in order of first occurrence.
  std::span<const Entry> entries() const { return entries_; }

 private:
  Entry& entry_of(int32_t token);
  void grow();

  bool with_prompt_;
  size_t seen_ = 0;
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // open addressing, a power of two: index into entries_, -1 = free
};

}  // namespace fovea
