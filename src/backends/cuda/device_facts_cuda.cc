#include <cuda_runtime_api.h>

#include <algorithm>

#include "backends/cuda/device_facts.h"
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea::cuda {
namespace {

int least(int fact, int limit) {
  return limit > 0 ? std::min(fact, limit) : fact;
}

}  // namespace

/// The runtime caches these attributes: a query takes tens of nanoseconds.
Result<DeviceFacts> device_facts(int device) {
  int major = 0, minor = 0, shared_bytes = 0, multiprocessors = 0;
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  FOVEA_CUDA_TRY(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  const DeviceLimits limits = device_limits();
  DeviceFacts facts;
  facts.info.kind = DeviceKind::cuda;
  facts.info.compute_capability = 10 * major + minor;
  facts.info.shared_bytes = least(shared_bytes, limits.shared_bytes);
  facts.multiprocessors = least(multiprocessors, limits.multiprocessors);
  return facts;
}

}  // namespace fovea::cuda
