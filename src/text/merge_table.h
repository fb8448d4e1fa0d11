#pragma once
// (left id, right id) -> rank and merged id: open addressing with linear probing, since it is looked up a few
// times for every byte of input.
#include <cstdint>
#include <vector>

namespace fovea::text {

struct Merge {
  uint32_t rank = UINT32_MAX;  ///< position in the merge list; smaller merges first; UINT32_MAX = no merge
  int32_t id = -1;
  bool exists() const { return rank != UINT32_MAX; }
};

class MergeTable {
 public:
  /// Room for `count` merges at a load of at most one half.
  void reserve(size_t count) {
    size_t capacity = 16;
    while (capacity < count * 2)
      capacity *= 2;
    slots_.assign(capacity, {});
    mask_ = capacity - 1;
  }

  /// Later entries of one pair win.
  void insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = probe(key(left, right));
    slot = {key(left, right), merge};
  }

  Merge find(int32_t left, int32_t right) const {
    if (slots_.empty()) return {};
    return const_cast<MergeTable*>(this)->probe(key(left, right)).merge;
  }

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;  // ids are never negative, so no pair has this key
    Merge merge;
  };

  static uint64_t key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Slot& probe(uint64_t wanted) {
    uint64_t hash = wanted * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    size_t i = hash & mask_;
    while (slots_[i].key != wanted && slots_[i].key != UINT64_MAX)
      i = (i + 1) & mask_;
    return slots_[i];
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
};

}  // namespace fovea::text
