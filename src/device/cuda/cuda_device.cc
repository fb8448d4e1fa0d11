#include "device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea {
namespace {

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

}  // namespace

Result<int> count_cuda_devices() {
  int count = 0;
  FOVEA_CUDA_TRY(cudaGetDeviceCount(&count));
  return count;
}

Result<CudaDevice> open_cuda_device(int ordinal) {
  FOVEA_TRY(count, count_cuda_devices());
  if (ordinal < 0 || ordinal >= count)
    return invalid("CUDA device " + std::to_string(ordinal) + " does not exist; 0 to " +
                   std::to_string(count - 1) + " are here");
  cudaDeviceProp properties;
  FOVEA_CUDA_TRY(cudaGetDeviceProperties(&properties, ordinal));
  CudaDevice device;
  device.ordinal = ordinal;
  device.name = properties.name;
  device.compute_capability = 10 * properties.major + properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  device.l2_bytes = properties.l2CacheSize;
  device.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
  device.shared_bytes_per_multiprocessor = static_cast<int>(properties.sharedMemPerMultiprocessor);
  device.registers_per_multiprocessor = properties.regsPerMultiprocessor;
  FOVEA_CUDA_TRY(cudaDriverGetVersion(&device.driver_version));
  FOVEA_CUDA_TRY(cudaRuntimeGetVersion(&device.runtime_version));
  if (device.compute_capability < kMinComputeCapability)
    return unsupported("CUDA device " + std::to_string(ordinal) + " (" + device.name +
                       ") has compute capability " + capability_text(device.compute_capability) +
                       "; this build needs " + capability_text(kMinComputeCapability) + " or more");
  return device;
}

CurrentDevice::CurrentDevice(int ordinal) {
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current == ordinal) return;
  // An ordinal without a device is reported by the next call that needs the device.
  if (cudaSetDevice(ordinal) == cudaSuccess) before_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

}  // namespace fovea
