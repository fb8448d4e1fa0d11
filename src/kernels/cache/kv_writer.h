#pragma once
// Writes rows of K and V to the pages of a view, in the cache's dtype.
#include <span>

#include "fovea/attention_step.h"
#include "kernels/cpu/kv_append_kernels.h"

namespace fovea {

class ThreadPool;

/// fp32 rows are rounded to nearest even. fp8: divided by the layer's scale in fp32, values beyond the
/// range and infinities become the largest number, NaN stays NaN. int8_per_token_head: each (token, head)
/// divided by its own scale, its largest magnitude / 127 or at least 2^-126; one that holds NaN or infinity
/// gets scale NaN, so that it reads back as NaN and not as something finite.
class KvWriter {
 public:
  /// Writes through the view's pointers.
  KvWriter(const KvView& view, int head_dim, int v_head_dim);

  /// Writes x [head_dim] to page slot / page_size, offset slot % page_size; the slot must be one of the
  /// cache.
  void k(int64_t slot, int64_t head, const float* x) const { write(k_, slot, head, x); }
  void v(int64_t slot, int64_t head, const float* x) const { write(v_, slot, head, x); }

 private:
  /// One of K and V.
  struct Target {
    std::byte* data;
    KvCacheDType dtype;
    int n;                     // elements of a row
    int64_t page, head, slot;  // strides in elements
    int64_t chunk;             // between runs of x slots; 0 = slots have one stride
    int64_t run, run_stride;   // runs of `run` contiguous elements, `run_stride` apart
    float scale;               // of the layer
    float* scales;             // of (token, head), or null
  };
  void write(const Target& t, int64_t slot, int64_t head, const float* x) const;
  void store_row(const Target& t, const float* x, int64_t at, float scale) const;

  Target k_, v_;
  int64_t page_size_, scale_page_, scale_head_, scale_slot_;
  const kv_append::Kernels& kernels_;
};

/// Writes rows of K [T, Hkv, D] and V [T, Hkv, Dv] (fp32, row strides in elements) into slots[T] of a view
/// with num_pages; slot = page * page_size + offset, negative = padding, not written.
void write_kv(const KvView& view, int num_kv_heads, int head_dim, int v_head_dim,
              std::span<const int64_t> slots, const float* k, int64_t k_row_stride, const float* v,
              int64_t v_row_stride, ThreadPool& pool);

}  // namespace fovea
