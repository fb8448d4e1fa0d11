#pragma once
// Which pages of the KV cache are free. A page that is not free has exactly one owner: a sequence, or the
// prefix tree. One thread owns the pool.
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

  /// Appends `count` pages to `pages` and makes the caller their owner; all of them or, when fewer are free,
  /// none (false). The page released last is taken first: its lines may still be in a cache.
  bool allocate(int64_t count, std::vector<int32_t>& pages);
  /// Gives pages back. Releasing a page that is free is a bug and ends the program.
  void release(std::span<const int32_t> pages);
  /// True while somebody owns the page.
  bool taken(int32_t page) const { return taken_[static_cast<size_t>(page)] != 0; }

  /// The free list and the flags agree (each page once). O(pages): for idle moments and tests.
  bool consistent() const;

 private:
  std::vector<int32_t> free_;  // a stack
  std::vector<uint8_t> taken_;
};

}  // namespace fovea
