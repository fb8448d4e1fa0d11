#include "tensor/buffer.h"

#include <new>
#include <utility>

namespace fovea {

Buffer::Buffer(Device& device, size_t bytes) : device_(&device), size_(bytes) {
  if (bytes > 0) data_ = static_cast<std::byte*>(device.allocate(bytes));
}

Buffer::Buffer(Buffer&& other) noexcept
    : device_(other.device_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_) device_->release(data_, size_);
}

Tensor Buffer::tensor(ElementType dtype, std::initializer_list<int64_t> shape, size_t offset) const {
  FOVEA_CHECK(device_ && offset <= size_ && offset % size_of(dtype) == 0);
  FOVEA_CHECK(dense_bytes(dtype, shape) <= size_ - offset);
  return Tensor::dense(data_ ? data_ + offset : nullptr, *device_, dtype, shape);
}

size_t dense_bytes(ElementType dtype, std::initializer_list<int64_t> shape) {
  size_t bytes = size_of(dtype);
  for (const int64_t size : shape) {
    FOVEA_CHECK(size >= 0);
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) throw std::bad_alloc();
  }
  return bytes;
}

}  // namespace fovea
