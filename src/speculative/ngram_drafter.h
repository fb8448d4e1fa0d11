#pragma once
// Prompt lookup: what followed the last tokens earlier in the same sequence.
#include <unordered_map>

#include "speculative/drafter.h"

namespace fovea {

/// The index of one sequence: where each n-gram of its tokens occurred first, for all lengths from min to
/// max.
class NgramIndex {
 public:
  NgramIndex(int min, int max) : min_(min), max_(max) {}

  /// The tokens that follow the earliest occurrence of the longest suffix of min to max tokens that occurred
  /// before (it may overlap the suffix), at most `most`; fewer where the tokens end. vLLM's rule. `tokens`
  /// only grow from call to call. O(max - min + 1) for each new token, whatever the length.
  std::span<const int32_t> find(std::span<const int32_t> tokens, int most);
  /// False if find() will have nothing when one more token has followed `tokens`, whichever it is.
  bool may_find_next(std::span<const int32_t> tokens);

 private:
  void add(std::span<const int32_t> tokens);

  int min_, max_;
  size_t seen_ = 0;  // tokens in the index
  // By hash of length and tokens: the end of the first; also of those with one token less than min.
  std::unordered_map<uint64_t, uint32_t> first_;
};

class NgramDrafter final : public Drafter {
 public:
  NgramDrafter(int min, int max) : min_(min), max_(max) {}

  void propose(std::span<DraftJob> jobs) override;
  bool may_draft(const DraftJob& job) override;
  void end(uint64_t id, std::span<const int32_t>, int, std::string_view) override { sequences_.erase(id); }

 private:
  int min_, max_;
  std::unordered_map<uint64_t, NgramIndex> sequences_;
};

}  // namespace fovea
