#pragma once
// Reads config.json: fields common to most decoder families.
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "files/json_fields.h"
#include "model/config.h"

namespace fovea {

/// parse_model_config() for config.json alone; `file` is for messages.
Result<ModelConfig> parse_model_config(const nlohmann::json& root, const std::string& file);

/// Sizes by Llama's keys: vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
/// num_key_value_heads (absent: as many), head_dim (absent: `default_head_dim`, or hidden_size /
/// num_attention_heads where that is 0), max_position_embeddings. Also sizes config.layers.
void read_sizes(Fields& fields, ModelConfig& config, int default_head_dim = 0);

/// dtype (transformers 5) or torch_dtype (4); float32 if both are absent.
DType read_checkpoint_dtype(Fields& fields);

/// A family's defaults for absent window keys.
struct LayerTypeDefaults {
  bool slides = false;  ///< use_sliding_window; if true, max_window_layers defaults to 0 instead of 28
  int window = 0;       ///< sliding_window; 0 = none (as null)
  int pattern = 0;  ///< > 0: layer i slides unless (i + 1) % pattern == 0, regardless of use_sliding_window
  int chunk = 0;    ///< chunk size of chunked_attention; 0 = not supported
};

/// layer_types, sliding_window, use_sliding_window and max_window_layers as config.layers[].window and
/// .chunk: the list takes precedence, then the pattern; otherwise layers from max_window_layers on slide if
/// use_sliding_window is true.
void read_layer_types(Fields& fields, ModelConfig& config, const LayerTypeDefaults& defaults = {});

/// How a family's rotation may differ from Llama's.
struct RopeTraits {
  double theta = 10000.0;    ///< if rope_theta is absent
  bool partial = false;      ///< partial_rotary_factor below 1 is supported
  bool interleaved = false;  ///< as RopeConfig's
};

/// Adds to config.ropes: rope_theta with rope_scaling (transformers 4) or rope_parameters (5). Call after
/// read_sizes(). YaRN raises config.max_position to factor * original_max_position_embeddings.
void read_rope(Fields& fields, ModelConfig& config, const RopeTraits& traits = {});

/// Adds two ropes: [0] for full and [1] for sliding layers, and sets config.layers[].rope. rope_parameters by
/// layer type (transformers 5), or rope_theta with rope_scaling and rope_local_base_freq (4).
void read_rope_by_layer_type(Fields& fields, ModelConfig& config, const RopeTraits& full,
                             const RopeTraits& sliding);

/// A number in (0, 1e4]; `fallback` if the key is absent, 0 (off) if it is null.
float read_softcap(Fields& fields, const char* key, float fallback);

/// hidden_act (or hidden_activation): a name of Activation; anything else is an error.
Activation read_activation(Fields& fields, const char* key, Activation fallback);

}  // namespace fovea
