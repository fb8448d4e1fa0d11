#include "device/gpu.h"

#include "fovea/result.h"

namespace fovea {

bool cuda_built() {
  return false;
}

std::vector<GpuInfo> list_gpus() {
  return {};
}

Result<double> measure_gpu_read_bandwidth(int, int64_t, int) {
  return unsupported("not in this build: CUDA; build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

Result<double> measure_gpu_matmul_rate(int, int64_t, int) {
  return unsupported("not in this build: CUDA; build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

}  // namespace fovea
