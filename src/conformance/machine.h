#pragma once
// Where cases run: a device's memory and queue. The code that lays out, runs and reads a case is the same on
// all devices.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "device/stream.h"
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"

namespace fovea {
class ThreadPool;
}

namespace fovea::conformance {

/// Fill byte of memory before it is written. As fp32: about -3e-16, which is never a result.
inline constexpr uint8_t kPoison = 0xa5;

/// Bytes [first, first + bytes) of an array.
struct ByteRange {
  size_t first = 0, bytes = 0;
};

/// One case's use of a device; on a GPU only one session is open at a time, others wait. Memory is valid
/// until finish() on a GPU, and on a CPU as long as the session. Errors are those of the device.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  virtual Stream& stream() = 0;

  /// Allocates `bytes` of device memory, 64-byte aligned, all poison. Never null, even for 0 bytes.
  virtual Result<std::byte*> room(size_t bytes) = 0;
  /// The device address of a copy of `bytes` bytes at `host`, which must not change until finish(). On a CPU
  /// this is `host` itself.
  virtual Result<const std::byte*> put(const void* host, size_t bytes) = 0;
  /// Likewise for memory of which only `used` is committed; on a GPU the rest is poison.
  virtual Result<const std::byte*> put_parts(const std::byte* host, size_t bytes,
                                             std::span<const ByteRange> used) = 0;
  /// Writes to memory from room().
  virtual Status write(std::byte* device, const void* host, size_t bytes) = 0;
  /// The contents of `device` after the work queued before; may be read after finish().
  virtual Result<const std::byte*> get(const std::byte* device, size_t bytes) = 0;

  /// Records the work that `work` queues, without running it. On a CPU, each replay calls `work`.
  virtual Status record(std::function<Status(Stream&)> work) = 0;
  virtual Status replay() = 0;

  /// Waits for all queued work, and lets other sessions begin.
  virtual Status finish() = 0;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual const DeviceInfo& device() const = 0;
  /// Opens a session, after waiting for others to finish. Error: the device is lost.
  virtual Result<std::unique_ptr<DeviceSession>> open_session() = 0;
  /// The error by which a case made the device unusable; later results are invalid.
  virtual Status fault() const;
};

/// The CPU, with a thread team for a backend's work.
class HostMachine : public Machine {
 public:
  explicit HostMachine(ThreadPool& pool) : pool_(pool) {}
  const DeviceInfo& device() const override { return device_; }
  Result<std::unique_ptr<DeviceSession>> open_session() override;

 private:
  ThreadPool& pool_;
  DeviceInfo device_;
};

/// A GPU, and its description in a proof.
struct Gpu {
  std::unique_ptr<Machine> machine;
  std::string driver;    ///< "580.95.05, CUDA 13.0"
  std::string compiler;  ///< "CUDA 13.0"
};

/// The first NVIDIA GPU of this process. Error (unsupported): there is none, its driver is too old, or this
/// program is built without CUDA.
Result<Gpu> open_gpu();

}  // namespace fovea::conformance
