#include "ops/cuda/cuda_ops.h"

namespace fovea {

Result<std::unique_ptr<Ops>> make_cuda_ops(Device&, DType) {
  return unsupported("not in this build: the operations of a decoder on CUDA");
}

}  // namespace fovea
