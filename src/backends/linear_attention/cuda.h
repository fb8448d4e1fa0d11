#pragma once
// The calls of fovea/linear_attention.h on a GPU; in a build without CUDA they return an error.
#include "fovea/linear_attention.h"

namespace fovea {

Status lightning_attention_cuda(const LightningAttention& call, Stream& stream);
Status gated_delta_rule_cuda(const GatedDeltaRule& call, Stream& stream);
Status hstu_attention_cuda(const HstuAttention& call, Stream& stream);

}  // namespace fovea
