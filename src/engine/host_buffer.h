#pragma once
// Host memory that a device copies from and to at its full speed (pinned, on a GPU).
#include <cstddef>
#include <utility>

#include "tensor/device.h"

namespace fovea {

class HostBuffer {
 public:
  HostBuffer() = default;
  /// Uninitialised; 0 bytes allocate nothing. Throws std::bad_alloc.
  HostBuffer(Device& device, size_t bytes) : device_(&device), size_(bytes) {
    if (bytes > 0) data_ = static_cast<std::byte*>(device.allocate_host(bytes));
  }
  HostBuffer(HostBuffer&& other) noexcept { swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostBuffer() {
    if (data_ != nullptr) device_->release_host(data_, size_);
  }

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void swap(HostBuffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fovea
