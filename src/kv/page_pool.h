#pragma once
// The free list of KV cache pages. A page that is not free has exactly one owner: a sequence or the prefix
// tree. Not thread-safe.
#include <cstdint>
#include <span>
#include <vector>

namespace fovea {

class PagePool {
 public:
  /// Pages 0 .. num_pages - 1, all free. num_pages fits an int32 (page tables hold int32 ids).
  explicit PagePool(int64_t num_pages);

  int64_t total() const { return static_cast<int64_t>(taken_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  /// Appends `count` pages to `pages`, now owned by the caller; false, and none appended, when fewer are
  /// free. LIFO: the page released last may still be in a CPU cache.
  bool allocate(int64_t count, std::vector<int32_t>& pages);
  /// Frees pages. Releasing a free page is a bug and aborts.
  void release(std::span<const int32_t> pages);
  /// True while the page has an owner.
  bool taken(int32_t page) const { return taken_[static_cast<size_t>(page)] != 0; }

  /// Checks that the free list and the flags agree (each page once). O(pages): for idle times and tests.
  bool consistent() const;

 private:
  std::vector<int32_t> free_;  // a stack
  std::vector<uint8_t> taken_;
};

}  // namespace fovea
