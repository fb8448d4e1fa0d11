#pragma once
// One NVIDIA GPU: what it is, and the thread's current device.
#include <cstdint>
#include <string>

#include "fovea/result.h"

namespace fovea {

/// The least compute capability that this build has code for, 10 * major + minor.
inline constexpr int kMinComputeCapability = 80;

struct CudaDevice {
  int ordinal = 0;
  std::string name;
  int compute_capability = 0;  ///< 10 * major + minor
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int shared_bytes_per_block = 0;           ///< the most that a kernel may ask for
  int shared_bytes_per_multiprocessor = 0;  ///< for all of its blocks
  int registers_per_multiprocessor = 0;
  int driver_version = 0;   ///< of the CUDA that the driver is for: 13000 is 13.0
  int runtime_version = 0;  ///< of this build
};

/// How many devices there are. Error: no driver, one too old (with the versions), no device.
Result<int> count_cuda_devices();

/// Error: as above; an ordinal that is not there; a device below kMinComputeCapability.
Result<CudaDevice> open_cuda_device(int ordinal);

/// The calling thread's current device while it lives.
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
