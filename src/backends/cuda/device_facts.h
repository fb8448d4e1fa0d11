#pragma once
// What a CUDA device of this machine is, as far as the choice of kernels goes.
#include "fovea/attention.h"

namespace fovea::cuda {

struct DeviceFacts {
  DeviceInfo info;
  int multiprocessors = 0;
};

/// Of CUDA device `device`, held to device_limits(). In programs with CUDA.
Result<DeviceFacts> device_facts(int device);

/// What kernels are chosen by in the place of the device's own facts where that is less; 0 = as it is. For
/// proofs of a smaller device's kernels on a larger one (fovea conformance --shared-memory).
struct DeviceLimits {
  int shared_bytes = 0;     ///< of a block
  int multiprocessors = 0;  ///< that tiles of a prefill are to fill
};
/// Of the whole program, for plans made from here on.
void limit_devices(const DeviceLimits& limits);
DeviceLimits device_limits();

}  // namespace fovea::cuda
