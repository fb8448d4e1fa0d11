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
  return {group};
}

}  // namespace fovea
