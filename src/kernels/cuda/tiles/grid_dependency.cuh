#pragma once
// Programmatic dependent launch (sm_90; no-ops on older devices, where a kernel starts when the preceding one
// has ended). A kernel that is launched with cudaLaunchAttributeProgrammaticStreamSerialization must wait
// before it touches anything that earlier kernels write, or that they still read and it writes.
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// Waits until the preceding kernels have ended and their writes are visible.
FOVEA_DEVICE void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets CTAs of the next kernel start where resources are free.
FOVEA_DEVICE void grid_launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace fovea::cuda
