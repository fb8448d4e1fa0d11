#include "conformance/host_region.h"

#include <sys/mman.h>

namespace fovea::conformance {

HostRegion HostRegion::dense(size_t bytes) {
  HostRegion region;
  region.array_ = AlignedArray<std::byte>(bytes);
  region.data_ = region.array_.data();
  region.size_ = bytes;
  return region;
}

HostRegion HostRegion::sparse(size_t bytes) {
  constexpr size_t kPage = 4096;
  const size_t half = (bytes + kPage - 1) / kPage * kPage;
  HostRegion region;
  void* base =
      mmap(nullptr, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return region;
  // Huge pages for a thousand scattered pages would take 2 GiB.
  (void)madvise(base, 2 * half, MADV_NOHUGEPAGE);
  region.mapped_ = std::unique_ptr<void, Unmap>(base, Unmap{2 * half});
  region.data_ = static_cast<std::byte*>(base) + half;
  region.size_ = bytes;
  return region;
}

void HostRegion::Unmap::operator()(void* p) const {
  (void)munmap(p, bytes);
}

}  // namespace fovea::conformance
