#pragma once
// Config fields common to MoE models.
#include "model/config_fields.h"

namespace fovea {

/// num_experts or num_local_experts (transformers has both names for one number) and num_experts_per_tok
/// (absent: `default_top`) as config.moe.
void read_expert_counts(Fields& fields, ModelConfig& config, int default_top);

/// quantization_config, where its method is mxfp4, as config.moe.mxfp4; other methods are rejected elsewhere.
/// Hidden and intermediate sizes must be whole blocks.
void read_mxfp4(Fields& fields, ModelConfig& config);

}  // namespace fovea
