#pragma once
// What a model's layers keep in the KV cache.
#include <vector>

#include "kv/kv_group.h"
#include "model/config.h"
#include "model/kv_scales.h"

namespace fovea {

/// The KV cache groups of `config`, all in pages of `page_size` tokens; `dtype` is resolved, and `scales` are
/// used by fp8 dtypes only. None for an encoder, else one of all decoder layers and of kind full:
///  - also where layers have windows. They share one page table, and the scheduler releases a page once all
///    layers' windows have left it (SchedulerConfig::window);
///  - also for an encoder-decoder model, whose layers keep cross keys and values in pages of their own, of
///    the same shape and in the same memory as their self attention's.
std::vector<KvGroup> kv_groups(const ModelConfig& config, KvCacheDType dtype, KvLayout layout, int page_size,
                               const KvScales& scales = {});

}  // namespace fovea
