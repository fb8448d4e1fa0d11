#pragma once
// fp8 KV cache scales from a checkpoint: one for K and one for V of each layer; stored = value / scale.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "files/checkpoint.h"
#include "fovea/result_fwd.h"

namespace fovea {

struct KvScales {
  std::vector<float> k, v;  ///< [num_layers] positive numbers; empty = the checkpoint has none

  bool empty() const { return k.empty(); }
  /// "layers 0-31 (k 0.021..0.13, v 0.019..0.11)"
  std::string summary() const;
};

/// KV cache settings from the quantization_config of a config.json.
struct KvCacheScheme {
  bool scales = false;  ///< the checkpoint should have scales of the supported kind
  bool only = false;    ///< only the KV cache is quantised
  std::string problem;  ///< why its kv_cache_scheme is not supported; empty = supported or absent
};
KvCacheScheme kv_cache_scheme(const nlohmann::json& quantization_config);

/// Looks up each layer's scales by the names in use (after model.layers.N.self_attn.): k_scale, attn.k_scale,
/// k_proj.k_scale, k_proj.output_scale, qkv_proj.k_scale, the same with v, and kv_scale for both. Tensors are
/// scalars or have one element, in F32, F16 or BF16. Errors name the file and tensor: a scale that isn't a
/// positive number, another shape or type, contradictory names, K without V, only some layers, and none
/// although `promised`. `used` receives the tensors.
Result<KvScales> read_kv_scales(const Checkpoint& checkpoint, int num_layers, bool promised,
                                std::vector<const CheckpointTensor*>& used);

}  // namespace fovea
