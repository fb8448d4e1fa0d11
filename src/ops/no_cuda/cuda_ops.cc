#include "ops/cuda/cuda_ops.h"

namespace fovea {

Result<std::unique_ptr<Ops>> make_cuda_ops(Device&, DType) {
  return unsupported("not in this build: CUDA; build with FOVEA_BUILD_CUDA=1 ./run.sh");
}

}  // namespace fovea
