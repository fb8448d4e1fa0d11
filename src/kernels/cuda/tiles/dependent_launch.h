#pragma once
// Launches of kernels that may start while the kernel in front of them on the stream runs (programmatic
// dependent launch). Host code; grid_dependency.cuh is the device side.
//
// Such a kernel waits by grid_dependency_wait() in every CTA before it reads what earlier kernels write, and
// before all its writes. It has then waited for all earlier kernels, as each of them ends only after its own
// wait. It calls grid_launch_dependents() where it begins, so that the next kernel's CTAs start as soon as
// there is room for them. Data that no kernel on the stream writes may be read ahead of the wait.
#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/cuda/tiles/programmatic_launch.h"

namespace fovea::cuda {

struct LaunchShape {
  unsigned ctas = 1, threads = 1;
  size_t shared_bytes = 0;  ///< dynamic shared memory
  unsigned cluster = 1;     ///< CTAs of a cluster
};

/// Launches `kernel`, which waits for the kernels in front of it as described above. It is launched after
/// them where the device has no programmatic dependent launch.
template <class... Parameters>
cudaError_t launch_dependent(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                             const std::type_identity_t<Parameters>&... arguments) {
  int device = 0, major = 0;  // cached by the runtime
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  const bool dependent = has_programmatic_launch(major);
  // CTAs of two kernels share a multiprocessor only where both divide its memory alike: most of it shared,
  // as for the linear layers.
  if (code == cudaSuccess && dependent)
    code = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
  if (code != cudaSuccess) return code;
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (dependent) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.ctas);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace fovea::cuda
