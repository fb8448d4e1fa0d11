#include "kv/kv_cache.h"

#include <cmath>
#include <limits>
#include <new>

#include "attention/kv_view.h"
#include "base/check.h"
#include "base/dtype_names.h"
#include "device/stream.h"
#include "kernels/cache/kv_writer.h"

namespace fovea {
namespace {

// A layer's K and V start on a cache line.
constexpr int64_t kBlockAlignment = Device::kAlignment;

/// Byte counts with overflow tracking.
class Bytes {
 public:
  explicit Bytes(int64_t value) : value_(value) {}
  Bytes operator*(int64_t by) const {
    Bytes r(0);
    r.overflow_ = __builtin_mul_overflow(value_, by, &r.value_) || overflow_;
    return r;
  }
  Bytes operator+(Bytes other) const {
    Bytes r(0);
    r.overflow_ = __builtin_add_overflow(value_, other.value_, &r.value_) || overflow_ || other.overflow_;
    return r;
  }
  Bytes aligned() const {
    Bytes r = *this + Bytes(kBlockAlignment - 1);
    r.value_ = r.value_ / kBlockAlignment * kBlockAlignment;
    return r;
  }
  bool overflow() const { return overflow_; }
  int64_t value() const { return value_; }

 private:
  int64_t value_;
  bool overflow_ = false;
};

/// Offsets within one layer: K begins at 0; begins of V, K scales and V scales; end.
struct LayerBlocks {
  Bytes v, k_scales, v_scales, end;
};

LayerBlocks layer_blocks(const KvCacheConfig& c) {
  const Bytes rows = Bytes(c.page_size) * c.num_kv_heads * c.num_pages;
  const auto item = static_cast<int64_t>(size_of(c.dtype));
  const Bytes scales =
      (rows * (has_token_scales(c.dtype) ? static_cast<int64_t>(sizeof(float)) : 0)).aligned();
  const Bytes v = (rows * c.head_dim * item).aligned();
  const Bytes k_scales = v + (rows * c.v_head_dim * item).aligned();
  return {v, k_scales, k_scales + scales, k_scales + scales + scales};
}

Status check_scales(const std::vector<float>& scales, const KvCacheConfig& c, const char* name) {
  if (scales.empty()) return {};
  if (scales.size() != static_cast<size_t>(c.num_layers) || !is_fp8(c.dtype))
    return invalid("KV cache: " + std::to_string(scales.size()) + " " + name + " scales for " +
                   std::to_string(c.num_layers) + " layers of " + std::string(to_string(c.dtype)) +
                   "; an fp8 cache takes one for each layer, the others none");
  for (const float scale : scales)
    if (!(scale > 0) || !std::isfinite(scale))
      return invalid(std::string("KV cache: a ") + name + " scale is " + std::to_string(scale) +
                     "; it must be a positive number");
  return {};
}

Status check_config(const KvCacheConfig& c) {
  if (c.num_layers < 1 || c.num_kv_heads < 1 || c.head_dim < 1 || c.v_head_dim < 1 || c.page_size < 1 ||
      c.num_pages < 1)
    return invalid("KV cache: layers, heads, head sizes, page size and pages must all be at least 1, not " +
                   std::to_string(c.num_layers) + ", " + std::to_string(c.num_kv_heads) + ", " +
                   std::to_string(c.head_dim) + "/" + std::to_string(c.v_head_dim) + ", " +
                   std::to_string(c.page_size) + ", " + std::to_string(c.num_pages));
  if (size_of(c.dtype) == 0)
    return unsupported("KV cache dtype " + std::string(to_string(c.dtype)) +
                       " can't be stored; allowed are " + stored_kv_cache_dtypes() +
                       (c.dtype == KvCacheDType::auto_ ? " (auto resolved)" : ""));
  FOVEA_RETURN_IF_ERROR(check_layout(c.layout, c.dtype, c.page_size, c.head_dim));
  FOVEA_RETURN_IF_ERROR(check_scales(c.k_scales, c, "K"));
  return check_scales(c.v_scales, c, "V");
}

}  // namespace

int64_t KvCache::bytes_per_page(const KvCacheConfig& config) {
  const int64_t row =
      static_cast<int64_t>(size_of(config.dtype)) * (int64_t{config.head_dim} + config.v_head_dim) +
      (has_token_scales(config.dtype) ? 2 * static_cast<int64_t>(sizeof(float)) : 0);
  const Bytes bytes = Bytes(row) * config.page_size * config.num_kv_heads * config.num_layers;
  return bytes.overflow() ? std::numeric_limits<int64_t>::max() : bytes.value();
}

Result<KvCache> KvCache::create(const KvCacheConfig& config, Device& device) {
  FOVEA_RETURN_IF_ERROR(check_config(config));
  const std::string what = "KV cache of " + std::to_string(config.num_pages) + " pages of " +
                           std::to_string(config.page_size) + " tokens";
  const Bytes total = layer_blocks(config).end * config.num_layers;
  if (total.overflow() || total.value() > std::numeric_limits<int64_t>::max() - kBlockAlignment)
    return Error{ErrorCode::out_of_memory, what + " exceeds 64-bit sizes; use fewer pages"};
  KvCache cache;
  cache.device_ = &device;
  cache.config_ = config;
  if (cache.config_.layout == KvLayout::auto_) cache.config_.layout = KvLayout::hnd;
  try {
    cache.data_ = Buffer(device, static_cast<size_t>(total.value()));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, what + " needs " + std::to_string(total.value() >> 20) +
                                               " MiB, which the system refused; use fewer pages"};
  }
  return cache;
}

KvView KvCache::layer(int layer) const {
  FOVEA_CHECK(layer >= 0 && layer < config_.num_layers);
  const LayerBlocks blocks = layer_blocks(config_);  // fit: create() checked it
  const std::byte* base = data_.data() + layer * blocks.end.value();
  KvView view = paged_view(config_.layout, config_.dtype, config_.num_kv_heads, config_.page_size,
                           config_.head_dim, config_.v_head_dim);
  view.num_pages = config_.num_pages;
  view.k = base;
  view.v = base + blocks.v.value();
  const auto of_layer = [layer](const std::vector<float>& scales) {
    return scales.empty() ? 1.0f : scales[static_cast<size_t>(layer)];
  };
  view.k_scale = of_layer(config_.k_scales);
  view.v_scale = of_layer(config_.v_scales);
  if (has_token_scales(config_.dtype)) {
    view.k_scales = reinterpret_cast<const float*>(base + blocks.k_scales.value());
    view.v_scales = reinterpret_cast<const float*>(base + blocks.v_scales.value());
  }
  return view;
}

void KvCache::append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride,
                     const float* v, int64_t v_row_stride, Stream& stream) {
  FOVEA_CHECK(device_ == &cpu_device());
  write_kv(this->layer(layer), config_.num_kv_heads, config_.head_dim, config_.v_head_dim, slots, k,
           k_row_stride, v, v_row_stride, stream.pool());
}

}  // namespace fovea
