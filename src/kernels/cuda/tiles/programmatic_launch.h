#pragma once
// Which devices may be given kernels by programmatic dependent launch. Host code; grid_dependency.cuh is the
// device's side.

namespace fovea::cuda {

/// By major compute capability. Only the code for sm_90 waits for the kernel before: devices after it run the
/// PTX of sm_80, where grid_dependency_wait() is nothing, and would read what is not written yet.
constexpr bool has_programmatic_launch(int major) {
  return major == 9;
}

}  // namespace fovea::cuda
