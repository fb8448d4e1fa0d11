#include "engine/engine_gpu.h"

namespace fovea {
namespace {

Error not_built() {
  return unsupported(
      "models run on the CPU only: this build has no CUDA code; build with FOVEA_BUILD_CUDA=1 ./run.sh, or "
      "give --device cpu");
}

}  // namespace

Result<DeviceInfo> gpu_info(int) {
  return not_built();
}

Result<std::unique_ptr<DeviceQueue>> make_gpu_queue(Device&, Stream&, int) {
  return not_built();
}

}  // namespace fovea
