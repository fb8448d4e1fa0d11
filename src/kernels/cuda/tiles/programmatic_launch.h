#pragma once
// Devices that support programmatic dependent launch of our kernels. Host code; grid_dependency.cuh is the
// device side.

namespace fovea::cuda {

/// By major compute capability. Only the code for sm_90 waits for the preceding kernel: newer devices run the
/// PTX of sm_80, where grid_dependency_wait() is a no-op, and would read data that is not written yet.
constexpr bool has_programmatic_launch(int major) {
  return major == 9;
}

}  // namespace fovea::cuda
