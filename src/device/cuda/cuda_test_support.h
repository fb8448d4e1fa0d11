#pragma once
// For tests that need a GPU.
#include <gtest/gtest.h>

#include <vector>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"

namespace fovea {

/// The message of a failed Result, for assertions; empty when it is ok.
template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? std::string() : result.error().message;
}

/// A fixture that skips with a reason where there is no GPU, and provides a stream, a pool, and copies both
/// ways.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = open_cuda_device(0);
    if (!device.ok()) GTEST_SKIP() << "SKIPPED: no CUDA device (" << device.error().message << ")";
    device_ = *device;
    auto stream = CudaStream::create(0);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    stream_ = std::make_unique<CudaStream>(std::move(*stream));
    auto pool = DevicePool::create(0);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::make_unique<DevicePool>(std::move(*pool));
  }

  bool hopper() const { return device_.compute_capability == 90; }
  CudaStream& stream() { return *stream_; }
  DevicePool& pool() { return *pool_; }

  /// `count` elements of T, every byte 0xff: NaN in all float types, -1 in integers.
  template <class T>
  DeviceBuffer poisoned(size_t count) {
    auto buffer = pool().allocate(count * sizeof(T), stream());
    EXPECT_TRUE(buffer.ok()) << error_of(buffer);
    if (count > 0) {
      EXPECT_EQ(error_of(stream().fill(buffer->data(), 0xff, count * sizeof(T))), "");
    }
    return std::move(*buffer);
  }

  template <class T>
  DeviceBuffer upload(const std::vector<T>& host) {
    DeviceBuffer buffer = poisoned<T>(host.size());
    if (!host.empty()) {
      EXPECT_EQ(error_of(stream().copy(buffer.data(), host.data(), host.size() * sizeof(T))), "");
    }
    return buffer;
  }

  /// Reads after all queued work.
  template <class T>
  std::vector<T> download(const DeviceBuffer& buffer) {
    std::vector<T> host(buffer.size() / sizeof(T));
    if (!host.empty()) {
      EXPECT_EQ(error_of(stream().copy(host.data(), buffer.data(), host.size() * sizeof(T))), "");
    }
    EXPECT_EQ(error_of(stream().synchronize()), "");
    return host;
  }

  CudaDevice device_;

 private:
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<DevicePool> pool_;
};

}  // namespace fovea
