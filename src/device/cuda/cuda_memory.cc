#include "device/cuda/cuda_memory.h"

#include <limits>
#include <string>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea {

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      stream_(other.stream_),
      device_(other.device_),
      pool_(std::move(other.pool_)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(stream_, other.stream_);
  std::swap(device_, other.device_);
  std::swap(pool_, other.pool_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  const CurrentDevice current(device_);
  cudaFreeAsync(data_, stream_);
}

DevicePool::DevicePool(cudaMemPool_t handle, int device)
    : handle_(handle, [](cudaMemPool_t pool) { cudaMemPoolDestroy(pool); }), device_(device) {}

Result<DevicePool> DevicePool::create(int device) {
  FOVEA_TRY(checked, open_cuda_device(device));
  int supported = 0;
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device));
  if (supported == 0)
    return unsupported("CUDA device " + std::to_string(device) + " (" + checked.name +
                       ") offers no stream-ordered memory pools; another driver or device is needed");
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  cudaMemPool_t handle = nullptr;
  FOVEA_CUDA_TRY(cudaMemPoolCreate(&handle, &properties));
  DevicePool pool(handle, device);
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  FOVEA_CUDA_TRY(cudaMemPoolSetAttribute(handle, cudaMemPoolAttrReleaseThreshold, &keep));
  return pool;
}

Result<DeviceBuffer> DevicePool::allocate(size_t bytes, const CudaStream& stream) {
  if (stream.device() != device_)
    return invalid("the stream belongs to CUDA device " + std::to_string(stream.device()) +
                   ", the pool to device " + std::to_string(device_) + "; use a stream of that device");
  if (bytes == 0) return DeviceBuffer();
  const CurrentDevice current(device_);
  void* data = nullptr;
  if (const cudaError_t code = cudaMallocFromPoolAsync(&data, bytes, handle_.get(), stream.handle());
      code != cudaSuccess) {
    Error error = cuda_error(code, "cudaMallocFromPoolAsync", __FILE__, __LINE__);
    if (code != cudaErrorMemoryAllocation) return error;
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    error.message = std::to_string(bytes) + " bytes requested on CUDA device " + std::to_string(device_) +
                    ", " + std::to_string(free) + " of " + std::to_string(total) + " are free (" +
                    error.message + ")";
    return error;
  }
  return DeviceBuffer(static_cast<std::byte*>(data), bytes, stream.handle(), device_, handle_);
}

Result<size_t> DevicePool::attribute(cudaMemPoolAttr which) const {
  uint64_t bytes = 0;
  FOVEA_CUDA_TRY(cudaMemPoolGetAttribute(handle_.get(), which, &bytes));
  return static_cast<size_t>(bytes);
}

Result<size_t> DevicePool::used() const {
  return attribute(cudaMemPoolAttrUsedMemCurrent);
}

Result<size_t> DevicePool::reserved() const {
  return attribute(cudaMemPoolAttrReservedMemCurrent);
}

Status DevicePool::trim(size_t keep) {
  FOVEA_CUDA_TRY(cudaMemPoolTrimTo(handle_.get(), keep));
  return {};
}

Result<PinnedBuffer> PinnedBuffer::allocate(size_t bytes) {
  void* data = nullptr;
  if (bytes > 0) FOVEA_CUDA_TRY(cudaMallocHost(&data, bytes));
  return PinnedBuffer(static_cast<std::byte*>(data), bytes);
}

}  // namespace fovea
