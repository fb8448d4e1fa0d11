#pragma once
// Host memory of which only the pages that are written take room, for tensors whose offsets pass 2^31.
#include <cstddef>
#include <memory>

#include "base/aligned.h"

namespace fovea::conformance {

/// Bytes of the host, 64-byte aligned.
class HostRegion {
 public:
  HostRegion() = default;
  /// Not initialised.
  static HostRegion dense(size_t bytes);
  /// Zero, and no memory until it is written. As many bytes before it can be read, too, so that an offset
  /// which wraps around to a negative one gives a wrong result and no fault. Empty (data() is null) where the
  /// system does not map so much.
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
