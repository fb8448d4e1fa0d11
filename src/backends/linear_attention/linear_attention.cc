#include "fovea/linear_attention.h"

#include "backends/linear_attention/cuda.h"
#include "device/stream.h"
#include "fovea/result.h"
#include "kernels/cpu/linear_attention.h"

namespace fovea {

Status lightning_attention(const LightningAttention& call, Stream& stream) {
  return stream.on_cpu() ? lightning_attention_cpu(call, stream.pool())
                         : lightning_attention_cuda(call, stream);
}

Status gated_delta_rule(const GatedDeltaRule& call, Stream& stream) {
  return stream.on_cpu() ? gated_delta_rule_cpu(call, stream.pool()) : gated_delta_rule_cuda(call, stream);
}

Status hstu_attention(const HstuAttention& call, Stream& stream) {
  return stream.on_cpu() ? hstu_attention_cpu(call, stream.pool()) : hstu_attention_cuda(call, stream);
}

}  // namespace fovea
