#pragma once
// The scales of an fp8 KV cache that a checkpoint brings: one number for K and one for V of each layer, with
// stored = value / scale.
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "model/checkpoint.h"

namespace fovea {

struct KvScales {
  std::vector<float> k, v;  ///< [num_layers] positive numbers; empty = the checkpoint has none

  bool empty() const { return k.empty(); }
  /// "layers 0-31 (k 0.021..0.13, v 0.019..0.11)"
  std::string summary() const;
};

/// What quantization_config of a config.json says about the KV cache.
struct KvCacheScheme {
  bool scales = false;  ///< the checkpoint is to have scales of the kind that is read here
  bool only = false;    ///< nothing but the cache is quantised
  std::string problem;  ///< why its kv_cache_scheme can't be served; empty = it can, or there is none
};
KvCacheScheme kv_cache_scheme(const nlohmann::json& quantization_config);

/// Looks each layer's scales up by the names that are in use (model.layers.N.self_attn. before them):
/// k_scale, attn.k_scale, k_proj.k_scale, k_proj.output_scale, qkv_proj.k_scale, the same with v, and
/// kv_scale for both. Tensors are scalars or have one element, in F32, F16 or BF16. Errors name the file and
/// tensor: a scale that isn't a positive number, another shape or type, names that contradict one another, K
/// without V, some layers only, and none at all though `promised`. `used` receives the tensors.
Result<KvScales> read_kv_scales(const Checkpoint& checkpoint, int num_layers, bool promised,
                                std::vector<const Tensor*>& used);

}  // namespace fovea
