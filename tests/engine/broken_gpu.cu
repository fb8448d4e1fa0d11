#include <algorithm>

#include "tests/engine/broken_gpu.h"

namespace fovea::test {
namespace {

__global__ void trap() {
  __trap();
}

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Each block holds all shared memory of its multiprocessor.
__global__ void occupy(unsigned long long duration) {
  const unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < duration)
    __nanosleep(100000);
}

}  // namespace

void trap_gpu() {
  trap<<<1, 1>>>();
}

void occupy_gpu(double seconds) {
  int device = 0, blocks = 0, shared = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaFuncSetAttribute(occupy, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  occupy<<<blocks, 1024, static_cast<size_t>(shared), stream>>>(
      static_cast<unsigned long long>(std::min(seconds, 30.0) * 1e9));
}

}  // namespace fovea::test
