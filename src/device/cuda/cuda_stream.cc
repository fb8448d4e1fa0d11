#include "device/cuda/cuda_stream.h"

#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea {

Result<CudaStream> CudaStream::create(int device) {
  FOVEA_TRY(checked, open_cuda_device(device));
  const CurrentDevice current(checked.ordinal);
  cudaStream_t handle = nullptr;
  FOVEA_CUDA_TRY(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  return CudaStream(handle, device, true);
}

CudaStream::CudaStream(CudaStream&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)),
      device_(other.device_),
      owned_(std::exchange(other.owned_, false)) {}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(device_, other.device_);
  std::swap(owned_, other.owned_);
  return *this;
}

CudaStream::~CudaStream() {
  if (owned_) cudaStreamDestroy(handle_);  // queued work still completes
}

Status CudaStream::wait(const CudaEvent& event) {
  FOVEA_CUDA_TRY(cudaStreamWaitEvent(handle_, event.handle(), 0));
  return {};
}

Status CudaStream::synchronize() const {
  FOVEA_CUDA_TRY(cudaStreamSynchronize(handle_));
  return {};
}

Result<bool> CudaStream::done() const {
  const cudaError_t code = cudaStreamQuery(handle_);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  FOVEA_CUDA_TRY(code);
  return true;
}

Status CudaStream::copy(void* to, const void* from, size_t bytes) {
  FOVEA_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle_));
  return {};
}

Status CudaStream::fill(void* to, unsigned char value, size_t bytes) {
  FOVEA_CUDA_TRY(cudaMemsetAsync(to, value, bytes, handle_));
  return {};
}

Result<CudaEvent> CudaEvent::create(int device, Timing timing) {
  const CurrentDevice current(device);
  cudaEvent_t handle = nullptr;
  FOVEA_CUDA_TRY(
      cudaEventCreateWithFlags(&handle, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming));
  return CudaEvent(handle);
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) cudaEventDestroy(handle_);
}

Status CudaEvent::record(const CudaStream& stream) {
  FOVEA_CUDA_TRY(cudaEventRecord(handle_, stream.handle()));
  return {};
}

Status CudaEvent::synchronize() const {
  FOVEA_CUDA_TRY(cudaEventSynchronize(handle_));
  return {};
}

Result<bool> CudaEvent::done() const {
  const cudaError_t code = cudaEventQuery(handle_);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  FOVEA_CUDA_TRY(code);
  return true;
}

Result<float> CudaEvent::milliseconds_since(const CudaEvent& begin) const {
  float milliseconds = 0;
  FOVEA_CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin.handle_, handle_));
  return milliseconds;
}

}  // namespace fovea
