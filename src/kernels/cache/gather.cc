#include <algorithm>

#include "base/float16.h"
#include "kernels/cache/cache_rows.h"
#include "kernels/cache/stored_value.h"
#include "kernels/cpu/for_rows.h"

namespace fovea {
namespace {

void store_as(void* out, DType dtype, int64_t at, float x) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(out)[at] = x; return;
    case DType::f16: static_cast<uint16_t*>(out)[at] = float_to_fp16(x); return;
    case DType::bf16: static_cast<uint16_t*>(out)[at] = float_to_bf16(x); return;
  }
}

/// The layout of K or V in a view: strides in elements, runs of contiguous elements.
struct Source {
  const void* data;
  int n;
  int64_t page, head, run, run_stride;
  float scale;
  const float* scales;
};

}  // namespace

void gather_rows(const GatherRows& p, ThreadPool& pool) {
  const KvView& kv = p.kv;
  const bool packed = kv.form == KvForm::x_packed;
  const Source k = {kv.k,
                    p.head_dim,
                    kv.k_page_stride,
                    kv.k_head_stride,
                    packed ? x_of(kv.dtype) : p.head_dim,
                    kv.k_chunk_stride,
                    kv.k_scale,
                    kv.k_scales};
  const Source v = {kv.v,
                    p.v_head_dim,
                    kv.v_page_stride,
                    kv.v_head_stride,
                    packed ? 1 : p.v_head_dim,
                    packed ? kv.v_dim_stride : 0,
                    kv.v_scale,
                    kv.v_scales};
  const auto copy = [&](const Source& from, int64_t row, int64_t slot, void* to) {
    for (int64_t h = 0; h < p.num_kv_heads; ++h) {
      const int64_t begin = (row * p.num_kv_heads + h) * from.n;
      if (slot < 0 || slot >= p.num_slots) {
        for (int d = 0; d < from.n; ++d)
          store_as(to, p.dtype, begin + d, 0.0f);
        continue;
      }
      const int64_t page = slot / kv.page_size, offset = slot % kv.page_size;
      const int64_t at =
          page * from.page + h * from.head + (&from == &k ? offset * kv.k_slot_stride : kv.v_slot(offset));
      const float token = from.scales == nullptr
                              ? 1.0f
                              : from.scales[page * kv.scale_page_stride + h * kv.scale_head_stride +
                                            offset * kv.scale_slot_stride];
      for (int d = 0; d < from.n; ++d) {
        const int64_t element = at + d / from.run * from.run_stride + d % from.run;
        store_as(to, p.dtype, begin + d, stored_value(from.data, element, kv.dtype) * from.scale * token);
      }
    }
  };
  for_rows(p.rows, int64_t{p.rows} * p.num_kv_heads * (p.head_dim + p.v_head_dim), pool, [&](int64_t row) {
    copy(k, row, p.slots[row], p.k);
    copy(v, row, p.slots[row], p.v);
  });
}

}  // namespace fovea
