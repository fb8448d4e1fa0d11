#include "kernels/cuda/simt/launch-inl.cuh"

namespace fovea::cuda::simt {

bool launch8(const Launch& l, cudaError_t& code) {
  return launch_list<Keys::e4m3>(l, code) || launch_list<Keys::e5m2>(l, code) ||
         launch_list<Keys::int8>(l, code);
}

}  // namespace fovea::cuda::simt
