#pragma once
// Programmatic dependent launch (sm_90; nothing on older devices, where a kernel starts when the one before
// it has ended). A kernel that is launched with cudaLaunchAttributeProgrammaticStreamSerialization must wait
// before it touches anything that earlier kernels write, or that they still read and it writes.
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// Whether a device of compute capability major.x runs code that waits, so that kernels may be launched so
/// there: that of sm_90. Later devices run the PTX of compute_80, which does not wait.
constexpr bool has_grid_dependency(int major) {
  return major == 9;
}

/// Until the kernels before have ended and their writes are visible.
FOVEA_DEVICE void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets the next kernel's blocks start where there is room for them.
FOVEA_DEVICE void grid_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace fovea::cuda
