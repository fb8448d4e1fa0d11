#pragma once
// Owned device memory.
#include <cstddef>
#include <initializer_list>

#include "tensor/device.h"

namespace fovea {

class Buffer {
 public:
  Buffer() = default;
  /// Uninitialised, aligned to Device::kAlignment; 0 bytes allocate nothing. Throws std::bad_alloc.
  Buffer(Device& device, size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  /// A dense tensor that begins `offset` bytes into the buffer, a multiple of the element size; it must end
  /// within the buffer.
  Tensor tensor(ElementType dtype, std::initializer_list<int64_t> shape, size_t offset = 0) const;

 private:
  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The bytes of a dense tensor. Throws std::bad_alloc if they overflow 64 bits.
size_t dense_bytes(ElementType dtype, std::initializer_list<int64_t> shape);

}  // namespace fovea
