#pragma once
// GPU memory in stream order, and pinned host memory.
#include <cuda_runtime_api.h>
#include <utility>

#include <cstddef>
#include <memory>

#include "device/cuda/cuda_stream.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// Device memory, 256-byte aligned. Freed in the order of the stream that it was allocated on, which must
/// outlive it; events order work on other streams after the allocation and before the free.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size() const { return size_; }

 private:
  friend class DevicePool;
  DeviceBuffer(std::byte* data, size_t size, cudaStream_t stream, int device,
               std::shared_ptr<const void> pool)
      : data_(data), size_(size), stream_(stream), device_(device), pool_(std::move(pool)) {}

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  cudaStream_t stream_ = nullptr;
  int device_ = 0;
  std::shared_ptr<const void> pool_;  // keeps the pool of this memory alive
};

/// A stream-ordered pool of one device (cudaMallocAsync). Freed memory stays in the pool for the next
/// allocation, so that steps allocate without a driver call; trim() returns it.
class DevicePool {
 public:
  static Result<DevicePool> create(int device);

  /// `bytes` from 0 on (0 gives a null pointer). Error: out_of_memory with the bytes requested and the bytes
  /// free.
  Result<DeviceBuffer> allocate(size_t bytes, const CudaStream& stream);

  /// Bytes in buffers, and bytes that the pool holds in total.
  Result<size_t> used() const;
  Result<size_t> reserved() const;
  /// Returns free memory beyond `keep` bytes to the driver.
  Status trim(size_t keep);

 private:
  DevicePool(cudaMemPool_t handle, int device);
  Result<size_t> attribute(cudaMemPoolAttr which) const;

  std::shared_ptr<CUmemPoolHandle_st> handle_;
  int device_ = 0;
};

/// Pinned host memory for asynchronous copies, 256-byte aligned.
class PinnedBuffer {
 public:
  static Result<PinnedBuffer> allocate(size_t bytes);

  std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { cudaFreeHost(data); }
  };
  PinnedBuffer(std::byte* data, size_t size) : data_(data), size_(size) {}

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace fovea
