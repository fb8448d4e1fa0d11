#pragma once
// The paged KV cache: one block a layer. In the layout of its own (hnd) pages are [num_pages, Hkv, page_size,
// D], so that one head's tokens of a page are contiguous; KvLayout lists the others. Slot ids: page *
// page_size + offset; slot < 0 = padding, nothing is written.
#include <cstdint>
#include <span>
#include <vector>

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
  KvCacheDType dtype = KvCacheDType::float32;  ///< a stored one (size_of > 0)
  KvLayout layout = KvLayout::hnd;             ///< auto = hnd
  std::vector<float> k_scales, v_scales;       ///< [num_layers], of an fp8 dtype; empty = all 1
};

class KvCache {
 public:
  /// Allocates, touching no page. Errors: a size that overflows or can't be had, a dtype that isn't stored, a
  /// layout that the head size doesn't suit, scales that aren't positive numbers for each layer.
  static Result<KvCache> create(const KvCacheConfig& config);

  /// Bytes of K and V together, with the scales of its tokens, of one page over all layers.
  static int64_t bytes_per_page(const KvCacheConfig& config);

  const KvCacheConfig& config() const { return config_; }
  KvView layer(int layer) const;

  /// Writes rows of K [T, Hkv, D] and V [T, Hkv, Dv] (fp32, row strides in elements) into slots[T] of `layer`
  /// in the cache's dtype, as KvWriter (kernels/cache/kv_writer.h) says.
  void append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride, const float* v,
              int64_t v_row_stride, Stream& stream);

 private:
  KvCacheConfig config_;
  AlignedArray<std::byte> data_;
};

}  // namespace fovea
