#pragma once
// What a model's layers keep in the KV cache.
#include <vector>

#include "kv/kv_group.h"
#include "model/config.h"
#include "model/kv_scales.h"

namespace fovea {

/// The KV cache groups of `config`, all in pages of `page_size` tokens; `dtype` is resolved, and `scales` are
/// used by fp8 dtypes only. An encoder has none. A model with latent attention has one group of kind latent,
/// with index keys where its attention is sparse: e4m3 if the cache or the checkpoint's weights have 8 bits,
/// else of `dtype`. Other models have one group, of kind full, with all decoder layers:
///  - also if layers have windows. They share one page table, and the scheduler releases a page once it lies
///    before all layers' windows (SchedulerConfig::window);
///  - also in an encoder-decoder model, whose layers keep cross keys and values in separate pages, of the
///    same shape and in the same memory as those of their self attention.
std::vector<KvGroup> kv_groups(const ModelConfig& config, KvCacheDType dtype, KvLayout layout, int page_size,
                               const KvScales& scales = {});

}  // namespace fovea
