#pragma once
// Where cases run: a device's memory and queue. What lays out, runs and reads a case is the same code on all
// of them.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "device/stream.h"
#include "fovea/attention.h"

namespace fovea::conformance {

/// What fills memory that nobody wrote. As floats: about -3e-16, never a result of ours.
inline constexpr uint8_t kPoison = 0xa5;

/// Bytes [first, first + bytes) of an array.
struct ByteRange {
  size_t first = 0, bytes = 0;
};

/// One case's use of a device; on a GPU one at a time, others wait for it. Memory lasts until finish() on a
/// GPU, and on a CPU as long as the session. Errors are those of the device.
class DeviceSession {
 public:
  virtual ~DeviceSession() = default;
  virtual Stream& stream() = 0;

  /// `bytes` of the device's memory, 64-byte aligned, all poison. Not null, even of 0 bytes.
  virtual Result<std::byte*> room(size_t bytes) = 0;
  /// Where the device reads the `bytes` at `host`, which stay as they are until finish(): on a CPU there.
  virtual Result<const std::byte*> put(const void* host, size_t bytes) = 0;
  /// Likewise where only `used` is there; on a GPU the rest is poison.
  virtual Result<const std::byte*> put_parts(const std::byte* host, size_t bytes,
                                             std::span<const ByteRange> used) = 0;
  /// Into memory that room() gave.
  virtual Status write(std::byte* device, const void* host, size_t bytes) = 0;
  /// What `device` holds once the work queued before is done; to be read after finish().
  virtual Result<const std::byte*> get(const std::byte* device, size_t bytes) = 0;

  /// What `work` queues, to be replayed: it does not run now. A CPU calls it at each replay.
  virtual Status record(std::function<Status(Stream&)> work) = 0;
  virtual Status replay() = 0;

  /// Waits for all that is queued, and lets others in.
  virtual Status finish() = 0;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual const DeviceInfo& device() const = 0;
  /// Begins a session, when others have finished theirs. Error: the device is lost.
  virtual Result<std::unique_ptr<DeviceSession>> open_session() = 0;
  /// Why the device is lost, by what a case did to it: nothing that runs after it means anything.
  virtual Status fault() const { return {}; }
};

/// The CPU, with a team of threads for a backend's work.
class HostMachine : public Machine {
 public:
  explicit HostMachine(ThreadPool& pool) : pool_(pool) {}
  const DeviceInfo& device() const override { return device_; }
  Result<std::unique_ptr<DeviceSession>> open_session() override;

 private:
  ThreadPool& pool_;
  DeviceInfo device_;
};

/// A GPU, and what a proof says of it.
struct Gpu {
  std::unique_ptr<Machine> machine;
  std::string driver;    ///< "580.95.05, CUDA 13.0"
  std::string compiler;  ///< "CUDA 13.0"
};

/// The first NVIDIA GPU of this process. Error (unsupported): there is none, its driver is too old, or this
/// program is built without CUDA.
Result<Gpu> open_gpu();

}  // namespace fovea::conformance
