#include "base/aligned.h"

#include <sys/mman.h>

namespace fovea::detail {

void* allocate_aligned(size_t count, size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - kHugePage) throw std::bad_alloc();
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : 64;
  bytes = bytes == 0 ? 64 : (bytes + 63) / 64 * 64;
  void* p = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (!p) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  // A hint, failure is harmless: streaming through weights has 512 times fewer TLB misses.
  if (alignment == kHugePage) (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}

}  // namespace fovea::detail
