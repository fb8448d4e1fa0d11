#pragma once
// The paged KV cache: one allocation range per layer. In the default layout (hnd), pages are [num_pages, Hkv,
// page_size, D], so that one head's tokens of a page are contiguous; KvLayout lists the others. Slot = page *
// page_size + offset; slot < 0 = padding, not written.
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention_backend.h"
#include "fovea/result.h"
#include "tensor/buffer.h"

namespace fovea {

struct KvCacheConfig {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;
  int page_size = 16;
  int64_t num_pages = 0;
  KvCacheDType dtype = KvCacheDType::float32;  ///< one that can be stored (size_of > 0)
  KvLayout layout = KvLayout::hnd;             ///< auto = hnd
  std::vector<float> k_scales, v_scales;       ///< [num_layers], fp8 dtypes only; empty = all 1
};

class KvCache {
 public:
  /// Allocates memory of `device` without touching any page. Errors: a size that overflows or cannot be
  /// allocated, a dtype that cannot be stored, a layout that does not support the head size, scales that are
  /// not one positive number per layer.
  static Result<KvCache> create(const KvCacheConfig& config, Device& device = cpu_device());

  /// Bytes of one page over all layers: K, V and per-token scales.
  static int64_t bytes_per_page(const KvCacheConfig& config);

  const KvCacheConfig& config() const { return config_; }
  const Device& device() const { return *device_; }
  /// Pointers into the device's memory.
  KvView layer(int layer) const;

  /// Writes rows of K [T, Hkv, D] and V [T, Hkv, Dv] (fp32, row strides in elements) into slots[T] of `layer`
  /// in the cache's dtype, as specified by KvWriter (kernels/cache/kv_writer.h). Only on the CPU; elsewhere
  /// the device's operations write through layer() (Ops::norm_rope_append).
  void append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride, const float* v,
              int64_t v_row_stride, Stream& stream);

 private:
  KvCacheConfig config_;
  Device* device_ = nullptr;
  Buffer data_;
};

}  // namespace fovea
