#include "kv/page_pool.h"

#include <limits>

#include "base/check.h"

namespace fovea {

PagePool::PagePool(int64_t num_pages) {
  FOVEA_CHECK(num_pages >= 0 && num_pages <= std::numeric_limits<int32_t>::max());
  taken_.assign(static_cast<size_t>(num_pages), 0);
  free_.reserve(taken_.size());
  for (int64_t page = num_pages; page-- > 0;)
    free_.push_back(static_cast<int32_t>(page));
}

bool PagePool::allocate(int64_t count, std::vector<int32_t>& pages) {
  FOVEA_CHECK(count >= 0);
  if (count > free_pages()) return false;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t page = free_.back();
    free_.pop_back();
    taken_[static_cast<size_t>(page)] = 1;
    pages.push_back(page);
  }
  return true;
}

void PagePool::release(std::span<const int32_t> pages) {
  for (int32_t page : pages) {
    FOVEA_CHECK(page >= 0 && page < total() && taken(page));
    taken_[static_cast<size_t>(page)] = 0;
    free_.push_back(page);
  }
}

bool PagePool::consistent() const {
  std::vector<uint8_t> seen(taken_.size(), 0);
  for (int32_t page : free_) {
    if (page < 0 || page >= total() || taken(page) || seen[static_cast<size_t>(page)]) return false;
    seen[static_cast<size_t>(page)] = 1;
  }
  for (size_t page = 0; page < taken_.size(); ++page)
    if (!taken_[page] && !seen[page]) return false;
  return true;
}

}  // namespace fovea
