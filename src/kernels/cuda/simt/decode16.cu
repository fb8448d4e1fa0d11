#include "kernels/cuda/simt/launch-inl.cuh"

namespace fovea::cuda::simt {

bool launch16(const Launch& l, cudaError_t& code) {
  return launch_list<Keys::f16>(l, code) || launch_list<Keys::bf16>(l, code);
}

}  // namespace fovea::cuda::simt
