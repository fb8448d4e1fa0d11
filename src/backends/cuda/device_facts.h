#pragma once
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"
// Properties of this machine's CUDA devices that the choice of kernels depends on.

namespace fovea::cuda {

struct DeviceFacts {
  DeviceInfo info;
  int multiprocessors = 0;
};

/// The properties of CUDA device `device`, capped by limit_devices(). Only in programs with CUDA.
Result<DeviceFacts> device_facts(int device);

/// Caps on the device properties by which kernels are chosen; 0 = no cap. For proofs of a smaller device's
/// kernels on a larger one (fovea conformance --shared-memory).
struct DeviceLimits {
  int shared_bytes = 0;     ///< per block
  int multiprocessors = 0;  ///< for the tile size of a prefill
};
/// Sets the caps for the whole program; applies to later plans.
void limit_devices(const DeviceLimits& limits);
DeviceLimits device_limits();

}  // namespace fovea::cuda
