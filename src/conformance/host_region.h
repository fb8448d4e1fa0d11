#pragma once
// Host memory that is committed only for written pages, for tensors whose offsets exceed 2^31.
#include <cstddef>
#include <memory>

#include "base/aligned.h"

namespace fovea::conformance {

/// A region of host memory, 64-byte aligned.
class HostRegion {
 public:
  HostRegion() = default;
  /// Not initialised.
  static HostRegion dense(size_t bytes);
  /// Zero-filled; pages are committed when written. The same number of bytes in front of it is readable, so
  /// that an offset that wraps around to a negative value gives a wrong result instead of a fault. Empty
  /// (data() is null) if the system can't map that much.
  static HostRegion sparse(size_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(void* p) const;
  };
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  AlignedArray<std::byte> array_;
  std::unique_ptr<void, Unmap> mapped_;
};

}  // namespace fovea::conformance
