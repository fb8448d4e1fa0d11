#pragma once
// Config fields of models with multi-head latent attention.
#include "model/config_fields.h"

namespace fovea {

/// What a family assumes for absent keys, as transformers does.
struct MlaDefaults {
  int intermediate_size = 0;  ///< 0 = the key is required
  int q_rank = 1536;          ///< q_lora_rank; a null in the file means none
  int kv_rank = 512, nope_dim = 128, rope_dim = 64, v_dim = 128;
  const char *intermediate_key = "intermediate_size", *layers_key = "num_hidden_layers";
  int blocks = 1;  ///< of attention and MLP in one of the file's layers, each a layer of the config
};

/// vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
/// max_position_embeddings, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim, and
/// the scale of scores with YaRN's factor. head_dim and num_key_value_heads have no meaning in these files:
/// transformers writes the rotated size as head_dim.
void read_mla_sizes(Fields& fields, ModelConfig& config, const MlaDefaults& defaults);

/// read_rope() for the rotated part of a head.
void read_mla_rope(Fields& fields, ModelConfig& config, const RopeTraits& traits);

/// YaRN's factor in the scale of scores: the square of 0.1 mscale_all_dim ln(factor) + 1; 1 without YaRN.
double read_mla_rope_scale(Fields& fields);

}  // namespace fovea
