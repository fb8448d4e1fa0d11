#pragma once
// The paged KV cache: one block a layer, pages [num_pages, Hkv, page_size, D], so that one head's tokens of a
// page are contiguous. Slot ids: page * page_size + offset; slot < 0 = padding, nothing is written.
#include <cstdint>
#include <span>

#include "base/aligned.h"
#include "fovea/attention_backend.h"
#include "fovea/result.h"

namespace fovea {

struct KvCacheConfig {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;
  int page_size = 16;
  int64_t num_pages = 0;
  DType dtype = DType::f32;
};

class KvCache {
 public:
  /// Allocates, touching no page; a size that overflows or can't be had is an error.
  static Result<KvCache> create(const KvCacheConfig& config);

  /// Bytes of K and V together of one page over all layers.
  static int64_t bytes_per_page(const KvCacheConfig& config);

  const KvCacheConfig& config() const { return config_; }
  KvView layer(int layer) const;

  /// Writes rows of K [T, Hkv, D] and V [T, Hkv, Dv] (fp32, row strides in elements), rounded to the cache's
  /// dtype, into slots[T] of `layer`.
  void append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride, const float* v,
              int64_t v_row_stride, Stream& stream);

 private:
  KvCacheConfig config_;
  AlignedArray<std::byte> data_;
};

}  // namespace fovea
