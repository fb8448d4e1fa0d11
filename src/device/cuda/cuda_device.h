#pragma once
// One NVIDIA GPU: what it is, and the thread's current device.
#include <cstdint>
#include <string>

#include "fovea/result_fwd.h"

namespace fovea {

/// The lowest compute capability that this build has code for, 10 * major + minor.
inline constexpr int kMinComputeCapability = 80;

struct CudaDevice {
  int ordinal = 0;
  std::string name;
  int compute_capability = 0;  ///< 10 * major + minor
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int shared_bytes_per_block = 0;           ///< the most that a kernel may request
  int shared_bytes_per_multiprocessor = 0;  ///< for all of its blocks
  int registers_per_multiprocessor = 0;
  int driver_version = 0;   ///< CUDA version of the driver: 13000 is 13.0
  int runtime_version = 0;  ///< CUDA version of this build
};

/// Number of devices. Error: no driver, one too old (with the versions), no device.
Result<int> count_cuda_devices();

/// Error: as above; no device with this ordinal; a device below kMinComputeCapability.
Result<CudaDevice> open_cuda_device(int ordinal);

/// Sets the calling thread's current device for its lifetime.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = -1;
};

}  // namespace fovea
