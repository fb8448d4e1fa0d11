#include "kernels/cuda/sm80/launch.h"

#include "kernels/cuda/sm80/launch-inl.cuh"

namespace fovea::cuda::sm80 {

Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream) {
  Launch l{kernel, params, max_items, stream};
  const bool found = kernel.kind == KernelKind::decode
                         ? launch_decode16(l) || launch_decode_general(l) || launch_decode_e4m3(l) ||
                               launch_decode_e5m2(l) || launch_decode_int8(l)
                         : launch_extend16(l) || launch_extend_general(l) || launch_extend_eight_bit(l);
  if (!found) return Error{ErrorCode::internal, "an attention kernel that select() doesn't give"};
  return l.status;
}

}  // namespace fovea::cuda::sm80
