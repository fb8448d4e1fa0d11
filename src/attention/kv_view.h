#pragma once
// Strides of the KV layouts.
#include "fovea/attention_backend.h"

namespace fovea {

/// A view of pages in `layout` (auto = hnd), its pointers left empty: K and V dense, and the scales of a
/// dtype that has them for each token [pages, Hkv, page_size]. x_packed needs head_dim % x_of(dtype) == 0.
KvView paged_view(KvLayout layout, KvCacheDType dtype, int num_kv_heads, int page_size, int head_dim,
                  int v_head_dim);

}  // namespace fovea
