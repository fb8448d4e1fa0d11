#include "model/kv_groups.h"

#include <numeric>

namespace fovea {

std::vector<KvGroup> kv_groups(const ModelConfig& config, KvCacheDType dtype, KvLayout layout, int page_size,
                               const KvScales& scales) {
  if (config.kind == ModelKind::encoder) return {};
  KvGroup group;
  group.layers.resize(static_cast<size_t>(config.num_layers));
  std::iota(group.layers.begin(), group.layers.end(), 0);
  group.num_kv_heads = config.num_kv_heads;
  group.head_dim = group.v_head_dim = config.head_dim;
  if (config.mla) {
    group.kind = KvKind::latent;
    group.v_head_dim = config.mla.kv_rank;
  }
  group.page_size = page_size;
  group.dtype = dtype;
  group.layout = layout;
  if (is_fp8(dtype)) {
    group.k_scales = scales.k;
    if (!config.mla) group.v_scales = scales.v;
  }
  if (config.sparse) {
    for (int i = 0; i < config.num_layers; ++i)
      if (config.indexer.full[static_cast<size_t>(i)]) group.index_layers.push_back(i);
    group.index_dim = config.indexer.dim;
    // DeepSeek's own code rounds index keys to e4m3, as it does the activations of e4m3 weights.
    const bool codes = config.quantization.fp8 || size_of(dtype) == 1;
    group.index_dtype = codes ? KvCacheDType::fp8_e4m3 : dtype;
  }
  return {group};
}

}  // namespace fovea
