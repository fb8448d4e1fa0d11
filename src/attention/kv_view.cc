#include "attention/kv_view.h"

#include <string>

#include "fovea/result.h"
#include "kernels/cache/ds_mla.h"

namespace fovea {

KvView paged_view(KvLayout layout, KvCacheDType dtype, int num_kv_heads, int page_size, int head_dim,
                  int v_head_dim) {
  const int64_t heads = num_kv_heads, page = page_size, d = head_dim, dv = v_head_dim;
  const bool nhd = layout == KvLayout::nhd;
  KvView view;
  view.dtype = dtype;
  view.page_size = page_size;
  view.k_page_stride = heads * page * d;
  view.v_page_stride = heads * page * dv;
  view.k_head_stride = nhd ? d : page * d;
  view.v_head_stride = nhd ? dv : page * dv;
  view.k_slot_stride = nhd ? heads * d : d;
  view.v_slot_stride = nhd ? heads * dv : dv;
  if (layout == KvLayout::x_packed || layout == KvLayout::shuffle) {
    view.form = KvForm::x_packed;
    view.k_slot_stride = x_of(dtype);
    view.k_chunk_stride = page * x_of(dtype);
    view.v_slot_stride = 1;
    view.v_dim_stride = page;
    if (layout == KvLayout::shuffle) {
      view.v_dim_stride = x_of(dtype);
      view.v_chunk_stride = dv * x_of(dtype);
    }
  }
  if (has_token_scales(dtype)) {
    view.scale_slot_stride = 1;
    view.scale_head_stride = page;
    view.scale_page_stride = heads * page;
  }
  return view;
}

KvView latent_view(KvCacheDType dtype, int page_size, int record_dim) {
  return paged_view(KvLayout::hnd, dtype, 1, page_size, record_dim, record_dim);
}

KvView latent_view(KvCacheDType dtype, int page_size, int record_dim, int rank) {
  return latent_view(dtype, page_size,
                     dtype == KvCacheDType::fp8_ds_mla
                         ? static_cast<int>(ds_mla_bytes(rank, record_dim - rank))
                         : record_dim);
}

Status check_layout(KvLayout layout, KvCacheDType dtype, int page_size, int head_dim) {
  const int x = x_of(dtype);
  if ((layout != KvLayout::x_packed && layout != KvLayout::shuffle) || x == 0) return {};
  const std::string name =
      "KV layout " + std::string(to_string(layout)) + " with " + std::string(to_string(dtype));
  if (head_dim % x != 0)
    return unsupported(name + " needs a head size that is a multiple of " + std::to_string(x) + ", not " +
                       std::to_string(head_dim) + "; use hnd or nhd");
  if (layout == KvLayout::shuffle && page_size % x != 0)
    return unsupported(name + " needs a page size that is a multiple of " + std::to_string(x) + ", not " +
                       std::to_string(page_size) + "; use --page-size " +
                       std::to_string((page_size + x - 1) / x * x) + ", or hnd");
  return {};
}

void set_layout(AttentionSpec& spec, KvLayout layout) {
  spec.kv_x_packed = layout == KvLayout::x_packed;
  spec.kv_shuffle = layout == KvLayout::shuffle;
}

KvLayout layout_of(const AttentionSpec& spec) {
  return spec.kv_shuffle ? KvLayout::shuffle : spec.kv_x_packed ? KvLayout::x_packed : KvLayout::hnd;
}

}  // namespace fovea
