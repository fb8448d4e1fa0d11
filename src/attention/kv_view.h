#pragma once
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/result_fwd.h"
// Strides of the KV layouts.

namespace fovea {

/// A view of pages in `layout` (auto = hnd), its pointers left empty: K and V dense, and the scales of a
/// dtype that has them for each token [pages, Hkv, page_size]. Needs check_layout().
KvView paged_view(KvLayout layout, KvCacheDType dtype, int num_kv_heads, int page_size, int head_dim,
                  int v_head_dim);

/// The view of MLA's pages of records of `record_dim` elements, one for each token and shared by all heads: V
/// is the beginning of K's record, with its strides. The caller sets v = k, v_scale = k_scale and
/// v_scales = k_scales.
KvView latent_view(KvCacheDType dtype, int page_size, int record_dim);
/// The same; fp8_ds_mla, whose records have a latent of `rank` elements, needs it.
KvView latent_view(KvCacheDType dtype, int page_size, int record_dim, int rank);

/// Whether `layout` supports these sizes: x_packed and shuffle need head_dim % x_of(dtype) == 0, shuffle also
/// needs page_size % x_of(dtype) == 0. The error has the numbers.
Status check_layout(KvLayout layout, KvCacheDType dtype, int page_size, int head_dim);

/// Sets AttentionSpec::kv_x_packed and kv_shuffle for a cache in `layout`.
void set_layout(AttentionSpec& spec, KvLayout layout);
/// The inverse of set_layout(); returns hnd for both hnd and nhd.
KvLayout layout_of(const AttentionSpec& spec);

}  // namespace fovea
