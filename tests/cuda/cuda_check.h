#pragma once
// CUDA calls of the check programs, which end a program at the first error. The kernels under test run on
// streams that do not wait for the default stream, so what prepares their memory is finished when it returns:
// cudaMemset() only queues its work, and cudaMemcpy() from pageable memory may return before the last bytes
// are on the device.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#define CUDA_CHECK(expression)                                                                   \
  do {                                                                                           \
    if (const cudaError_t code = (expression); code != cudaSuccess) {                            \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, cudaGetErrorString(code)); \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (0)

namespace fovea::cuda {

/// Sets `bytes` bytes of device memory.
inline void set_bytes(void* device, int byte, size_t bytes) {
  CUDA_CHECK(cudaMemset(device, byte, bytes));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

/// Copies `bytes` bytes of host memory to the device.
inline void copy_to_device(void* device, const void* host, size_t bytes) {
  CUDA_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
}

}  // namespace fovea::cuda
