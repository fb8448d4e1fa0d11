#pragma once
// Prompt lookup: what followed the last tokens earlier in the same sequence.
#include <unordered_map>
#include <vector>

#include "speculative/drafter.h"

namespace fovea {

/// Numbers above 0 by keys that are hashes. A table with open addressing: an index is searched between two
/// steps of a GPU, and grows by several keys for each token.
class HashTable {
 public:
  /// 0 = there is none.
  uint32_t find(uint64_t key) const;
  /// Has no effect where there is one.
  void add(uint64_t key, uint32_t number);
  /// Makes room for `keys` in all.
  void reserve(size_t keys);

 private:
  struct Slot {
    uint64_t key = 0;
    uint32_t number = 0;  // 0 = free
  };
  size_t place(uint64_t key) const;
  std::vector<Slot> slots_;  // 0, or a power of two
  size_t used_ = 0;
};

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
  HashTable first_;
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
