#pragma once
// CUDA streams and events.
#include <cuda_runtime_api.h>

#include "fovea/result_fwd.h"

namespace fovea {

class CudaEvent;

/// A queue of work on one device. Movable; threads that share it need a lock.
class CudaStream {
 public:
  /// A new stream that does not wait for the default stream.
  static Result<CudaStream> create(int device);
  /// A stream of the caller, which keeps it alive and destroys it.
  static CudaStream borrow(cudaStream_t handle, int device) { return CudaStream(handle, device, false); }

  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream();

  cudaStream_t handle() const { return handle_; }
  int device() const { return device_; }

  /// Work queued from now on starts after `event`.
  Status wait(const CudaEvent& event);
  /// Blocks the thread until all work is done; returns errors of that work.
  Status synchronize() const;
  /// Whether all work is done; does not block. Errors: those of that work.
  Result<bool> done() const;
  /// Bytes from host to device, device to host or within the device. Host memory that is not pinned is read
  /// or written before the call returns.
  Status copy(void* to, const void* from, size_t bytes);
  Status fill(void* to, unsigned char value, size_t bytes);

 private:
  CudaStream(cudaStream_t handle, int device, bool owned) : handle_(handle), device_(device), owned_(owned) {}

  cudaStream_t handle_ = nullptr;
  int device_ = 0;
  bool owned_ = false;
};

class CudaEvent {
 public:
  enum class Timing { off, on };

  static Result<CudaEvent> create(int device, Timing timing = Timing::off);

  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();

  cudaEvent_t handle() const { return handle_; }

  /// Completes when the work queued on the stream so far is done.
  Status record(const CudaStream& stream);
  Status synchronize() const;
  /// Whether it has completed; does not block.
  Result<bool> done() const;
  /// Milliseconds from `begin` to this; both have completed and have Timing::on.
  Result<float> milliseconds_since(const CudaEvent& begin) const;

 private:
  explicit CudaEvent(cudaEvent_t handle) : handle_(handle) {}

  cudaEvent_t handle_ = nullptr;
};

}  // namespace fovea
