#include "attention/kv_view.h"

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
  if (layout == KvLayout::x_packed) {
    view.form = KvForm::x_packed;
    view.k_slot_stride = x_of(dtype);
    view.k_chunk_stride = page * x_of(dtype);
    view.v_slot_stride = 1;
    view.v_dim_stride = page;
  }
  if (has_token_scales(dtype)) {
    view.scale_slot_stride = 1;
    view.scale_head_stride = page;
    view.scale_page_stride = heads * page;
  }
  return view;
}

}  // namespace fovea
