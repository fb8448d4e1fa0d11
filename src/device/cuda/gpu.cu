#include <cuda_runtime.h>

#include <algorithm>
#include <memory>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/gpu.h"
#include "fovea/result.h"

namespace fovea {
namespace {

struct DeviceFree {
  void operator()(void* p) const { cudaFree(p); }
};
struct EventDestroy {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, EventDestroy>;

/// Sums 16-byte words so that no load can be dropped; data [count], sink [1] is written only if the sum is a
/// value that memory cleared to 0 never gives.
__global__ void read_kernel(const uint4* __restrict__ data, int64_t count, unsigned* sink) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    uint4 word[4];
#pragma unroll
    for (int u = 0; u < 4; ++u)
      word[u] = __ldcs(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < 4; ++u)
      sum |= word[u].x | word[u].y | word[u].z | word[u].w;
  }
  for (; i < count; i += stride)
    sum |= data[i].x | data[i].y | data[i].z | data[i].w;
  if (sum != 0) *sink = sum;
}

}  // namespace

bool cuda_built() {
  return true;
}

std::vector<GpuInfo> list_gpus() {
  int count = 0;
  std::vector<GpuInfo> gpus;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no GPU is a valid answer
    return gpus;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    gpus.push_back({properties.name, properties.major * 10 + properties.minor, properties.multiProcessorCount,
                    static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return gpus;
}

Result<double> measure_gpu_read_bandwidth(int device, int64_t bytes, int repeats) {
  FOVEA_TRY(checked, open_cuda_device(device));
  const CurrentDevice current(checked.ordinal);
  cudaDeviceProp properties;
  FOVEA_CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  const int64_t words = bytes / static_cast<int64_t>(sizeof(uint4));
  void* raw = nullptr;
  FOVEA_CUDA_TRY(cudaMalloc(&raw, words * sizeof(uint4) + sizeof(unsigned)));
  const std::unique_ptr<void, DeviceFree> data(raw);
  FOVEA_CUDA_TRY(cudaMemset(raw, 0, words * sizeof(uint4) + sizeof(unsigned)));
  cudaEvent_t raw_begin, raw_end;
  FOVEA_CUDA_TRY(cudaEventCreate(&raw_begin));
  const Event begin(raw_begin);
  FOVEA_CUDA_TRY(cudaEventCreate(&raw_end));
  const Event end(raw_end);
  double best = 0;
  for (int i = 0; i < repeats + 1; ++i) {  // the first pass warms up
    FOVEA_CUDA_TRY(cudaEventRecord(begin.get()));
    // 8 blocks of 256 threads fill an SM's 2048 thread slots.
    read_kernel<<<properties.multiProcessorCount * 8, 256>>>(
        static_cast<const uint4*>(raw), words, reinterpret_cast<unsigned*>(static_cast<uint4*>(raw) + words));
    FOVEA_CUDA_TRY(cudaGetLastError());
    FOVEA_CUDA_TRY(cudaEventRecord(end.get()));
    FOVEA_CUDA_TRY(cudaEventSynchronize(end.get()));
    float milliseconds = 0;
    FOVEA_CUDA_TRY(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
    if (i > 0) best = std::max(best, static_cast<double>(words) * sizeof(uint4) / (milliseconds * 1e-3));
  }
  return best;
}

}  // namespace fovea
