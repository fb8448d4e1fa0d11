#pragma once
// NVIDIA GPUs of this machine. In a build without CUDA (src/device/no_cuda) there are none.
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

struct GpuInfo {
  std::string name;
  int compute_capability = 0;  ///< 10 * major + minor
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
};

/// Whether this build has CUDA code.
bool cuda_built();

/// Empty when there is no driver or no device; never fails a program that can run on the CPU.
std::vector<GpuInfo> list_gpus();

/// Read bandwidth in bytes per second over `bytes` of device memory, the best of `repeats` passes.
Result<double> measure_gpu_read_bandwidth(int device, int64_t bytes, int repeats);

/// Floating-point operations a second of bf16 matrix products of `size` x `size` x `size` by cuBLASLt, the
/// mean of `repeats`. Error: the library is not found.
Result<double> measure_gpu_matmul_rate(int device, int64_t size, int repeats);

}  // namespace fovea
