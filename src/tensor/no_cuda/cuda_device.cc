#include "tensor/cuda_device.h"

#include "fovea/result.h"

namespace fovea {
namespace {

Error not_built() {
  return unsupported("not in this build: CUDA; build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

}  // namespace

Result<std::unique_ptr<Device>> make_cuda_device(int) {
  return not_built();
}

Result<std::shared_ptr<Stream>> make_cuda_stream(int) {
  return not_built();
}

Result<DeviceMemory> cuda_device_memory(int) {
  return not_built();
}

}  // namespace fovea
