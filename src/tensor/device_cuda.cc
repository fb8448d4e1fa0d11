#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "tensor/cuda_device.h"

namespace fovea {
namespace {

class CudaMemoryDevice final : public Device {
 public:
  explicit CudaMemoryDevice(int ordinal) : ordinal_(ordinal), name_("cuda:" + std::to_string(ordinal)) {}

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string_view name() const override { return name_; }

  void* allocate(size_t bytes) override {
    const CurrentDevice current(ordinal_);
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) != cudaSuccess) {
      cudaGetLastError();  // or the next check of a launch reports it
      throw std::bad_alloc();
    }
    return data;
  }
  void release(void* data, size_t) override {
    const CurrentDevice current(ordinal_);
    cudaFree(data);
  }

  void* allocate_host(size_t bytes) override {
    const CurrentDevice current(ordinal_);
    void* data = nullptr;
    if (cudaMallocHost(&data, bytes) != cudaSuccess) {
      cudaGetLastError();
      throw std::bad_alloc();
    }
    return data;
  }
  void release_host(void* data, size_t) override {
    const CurrentDevice current(ordinal_);
    cudaFreeHost(data);
  }

  Status copy_from_host(void* to, const void* from, size_t bytes, Stream& stream) const override {
    return copy(to, from, bytes, stream);
  }
  Status copy_to_host(void* to, const void* from, size_t bytes, Stream& stream) const override {
    return copy(to, from, bytes, stream);
  }
  Status synchronize(Stream& stream) const override {
    const CurrentDevice current(ordinal_);
    FOVEA_RETURN_IF_ERROR(health());
    const auto since = std::chrono::steady_clock::now();
    while (true) {
      FOVEA_TRY(done, stream.cuda().done());
      if (done) return {};
      if (std::chrono::steady_clock::now() - since > kPatience) {
        stands_still_ = true;
        return health();
      }
      std::this_thread::yield();
    }
  }
  Status health() const override {
    if (!stands_still_) return {};
    return Error{ErrorCode::internal, name_ + " has not ended its work after " +
                                          std::to_string(kPatience.count()) +
                                          " seconds: the device stands still; restart the program"};
  }

 private:
  Status copy(void* to, const void* from, size_t bytes, Stream& stream) const {
    if (bytes == 0) return {};
    const CurrentDevice current(ordinal_);
    return stream.cuda().copy(to, from, bytes);
  }

  int ordinal_;
  std::string name_;
  mutable std::atomic<bool> stands_still_ = false;
};

/// The Stream refers to the CudaStream, so both live in one allocation.
struct OwnedCudaStream {
  explicit OwnedCudaStream(CudaStream queue) : cuda(std::move(queue)), stream(cuda) {}
  CudaStream cuda;
  Stream stream;
};

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int ordinal) {
  FOVEA_TRY(checked, open_cuda_device(ordinal));
  return std::unique_ptr<Device>(std::make_unique<CudaMemoryDevice>(checked.ordinal));
}

Result<std::shared_ptr<Stream>> make_cuda_stream(int ordinal) {
  FOVEA_TRY(queue, CudaStream::create(ordinal));
  auto owned = std::make_shared<OwnedCudaStream>(std::move(queue));
  return std::shared_ptr<Stream>(owned, &owned->stream);
}

Result<DeviceMemory> cuda_device_memory(int ordinal) {
  FOVEA_TRY(checked, open_cuda_device(ordinal));
  const CurrentDevice current(checked.ordinal);
  size_t free = 0, total = 0;
  FOVEA_CUDA_TRY(cudaMemGetInfo(&free, &total));
  return DeviceMemory{static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

}  // namespace fovea
