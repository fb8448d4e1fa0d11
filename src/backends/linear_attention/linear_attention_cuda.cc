#include "backends/linear_attention/cuda.h"
#include "device/stream.h"
#include "fovea/result.h"
#include "kernels/cpu/linear_attention.h"
#include "kernels/cuda/linear_attention/launch.h"

namespace fovea {

Status lightning_attention_cuda(const LightningAttention& call, Stream& stream) {
  FOVEA_RETURN_IF_ERROR(check_call(call));
  return cuda::launch_lightning(call, stream.cuda());
}

Status gated_delta_rule_cuda(const GatedDeltaRule& call, Stream& stream) {
  FOVEA_RETURN_IF_ERROR(check_call(call));
  return cuda::launch_gated_delta(call, stream.cuda());
}

Status hstu_attention_cuda(const HstuAttention& call, Stream& stream) {
  FOVEA_RETURN_IF_ERROR(check_call(call));
  return cuda::launch_hstu(call, stream.cuda());
}

}  // namespace fovea
