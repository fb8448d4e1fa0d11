#include <cuda_runtime_api.h>

#include <string>

#include "backends/cuda/device_check.h"
#include "device/cuda/cuda_error.h"
#include "fovea/result.h"

namespace fovea::cuda {
namespace {

/// Describes where an address lies; empty when kernels of the device may read it.
std::string wrong_place(const cudaPointerAttributes& where, int device) {
  switch (where.type) {
    case cudaMemoryTypeManaged: return {};
    case cudaMemoryTypeDevice:
      return where.device == device ? std::string()
                                    : "the memory of CUDA device " + std::to_string(where.device);
    case cudaMemoryTypeHost: return "pinned host memory";
    case cudaMemoryTypeUnregistered: return "host memory";
  }
  return "memory that CUDA does not know";
}

}  // namespace

Status check_on_device(std::initializer_list<NamedAddress> addresses, int device) {
  for (const NamedAddress& a : addresses) {
    if (a.address == nullptr) continue;
    cudaPointerAttributes where{};
    FOVEA_CUDA_TRY(cudaPointerGetAttributes(&where, a.address));
    if (const std::string place = wrong_place(where, device); !place.empty())
      return invalid(std::string(a.name) + " lies in " + place +
                     "; it must be in the memory of CUDA device " + std::to_string(device) +
                     ", to which the given stream belongs");
  }
  return {};
}

}  // namespace fovea::cuda
