#include "kv/kv_cache.h"

#include <cstring>
#include <limits>
#include <new>

#include "base/check.h"
#include "base/float16.h"
#include "device/stream.h"

namespace fovea {
namespace {

constexpr int64_t kBlockAlignment = 64;  // a layer's K and V start on a cache line

// Below this many elements a parallel region costs more than the copy (about 2 us at 1 element a cycle).
constexpr int64_t kMinParallelElements = 16384;

/// a * b, or nothing when it doesn't fit 64 bits.
bool multiply(int64_t a, int64_t b, int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

bool block_bytes(const KvCacheConfig& c, int head_dim, int64_t& out) {
  int64_t bytes = static_cast<int64_t>(size_of(c.dtype));
  if (!multiply(bytes, head_dim, bytes) || !multiply(bytes, c.page_size, bytes) ||
      !multiply(bytes, c.num_kv_heads, bytes) || !multiply(bytes, c.num_pages, bytes))
    return false;
  if (__builtin_add_overflow(bytes, kBlockAlignment - 1, &out)) return false;
  out = out / kBlockAlignment * kBlockAlignment;
  return true;
}

void store_row(const float* source, int n, DType dtype, std::byte* target) {
  switch (dtype) {
    case DType::f32: std::memcpy(target, source, static_cast<size_t>(n) * sizeof(float)); return;
    case DType::bf16: {
      auto* out = reinterpret_cast<uint16_t*>(target);
      for (int i = 0; i < n; ++i)
        out[i] = float_to_bf16(source[i]);
      return;
    }
    case DType::f16: {
      auto* out = reinterpret_cast<uint16_t*>(target);
      for (int i = 0; i < n; ++i)
        out[i] = float_to_fp16(source[i]);
      return;
    }
  }
}

}  // namespace

int64_t KvCache::bytes_per_page(const KvCacheConfig& config) {
  int64_t bytes = static_cast<int64_t>(size_of(config.dtype));
  const int64_t dims = int64_t{config.head_dim} + config.v_head_dim;
  if (!multiply(bytes, dims, bytes) || !multiply(bytes, config.page_size, bytes) ||
      !multiply(bytes, config.num_kv_heads, bytes) || !multiply(bytes, config.num_layers, bytes))
    return std::numeric_limits<int64_t>::max();
  return bytes;
}

Result<KvCache> KvCache::create(const KvCacheConfig& config) {
  if (config.num_layers < 1 || config.num_kv_heads < 1 || config.head_dim < 1 || config.v_head_dim < 1 ||
      config.page_size < 1 || config.num_pages < 1)
    return invalid("KV cache: layers, heads, head sizes, page size and pages must all be at least 1, not " +
                   std::to_string(config.num_layers) + ", " + std::to_string(config.num_kv_heads) + ", " +
                   std::to_string(config.head_dim) + "/" + std::to_string(config.v_head_dim) + ", " +
                   std::to_string(config.page_size) + ", " + std::to_string(config.num_pages));
  const std::string what = "KV cache of " + std::to_string(config.num_pages) + " pages of " +
                           std::to_string(config.page_size) + " tokens";
  int64_t k_bytes = 0, v_bytes = 0, layer_bytes = 0, total = 0;
  if (!block_bytes(config, config.head_dim, k_bytes) || !block_bytes(config, config.v_head_dim, v_bytes) ||
      __builtin_add_overflow(k_bytes, v_bytes, &layer_bytes) ||
      !multiply(layer_bytes, config.num_layers, total) ||
      total > std::numeric_limits<int64_t>::max() - kBlockAlignment)
    return Error{ErrorCode::out_of_memory, what + " exceeds 64-bit sizes; use fewer pages"};
  KvCache cache;
  cache.config_ = config;
  try {
    cache.data_ = AlignedArray<std::byte>(static_cast<size_t>(total));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, what + " needs " + std::to_string(total >> 20) +
                                               " MiB, which the system refused; use fewer pages"};
  }
  return cache;
}

KvView KvCache::layer(int layer) const {
  FOVEA_CHECK(layer >= 0 && layer < config_.num_layers);
  int64_t k_bytes = 0, v_bytes = 0;
  block_bytes(config_, config_.head_dim, k_bytes);  // fits: create() checked it
  block_bytes(config_, config_.v_head_dim, v_bytes);
  const std::byte* base = data_.data() + layer * (k_bytes + v_bytes);
  KvView view;
  view.k = base;
  view.v = base + k_bytes;
  view.dtype = config_.dtype;
  view.page_size = config_.page_size;
  view.k_slot_stride = config_.head_dim;
  view.k_head_stride = view.k_slot_stride * config_.page_size;
  view.k_page_stride = view.k_head_stride * config_.num_kv_heads;
  view.v_slot_stride = config_.v_head_dim;
  view.v_head_stride = view.v_slot_stride * config_.page_size;
  view.v_page_stride = view.v_head_stride * config_.num_kv_heads;
  return view;
}

void KvCache::append(int layer, std::span<const int64_t> slots, const float* k, int64_t k_row_stride,
                     const float* v, int64_t v_row_stride, Stream& stream) {
  const KvView view = this->layer(layer);
  const int64_t capacity = config_.num_pages * config_.page_size;
  const auto item = static_cast<int64_t>(size_of(config_.dtype));
  auto* k_base = const_cast<std::byte*>(static_cast<const std::byte*>(view.k));
  auto* v_base = const_cast<std::byte*>(static_cast<const std::byte*>(view.v));
  auto write_rows = [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = slots[static_cast<size_t>(t)];
      if (slot < 0) continue;
      FOVEA_CHECK(slot < capacity);
      const int64_t page = slot / config_.page_size, offset = slot % config_.page_size;
      for (int h = 0; h < config_.num_kv_heads; ++h) {
        const int64_t k_at = page * view.k_page_stride + h * view.k_head_stride + offset * view.k_slot_stride;
        const int64_t v_at = page * view.v_page_stride + h * view.v_head_stride + offset * view.v_slot_stride;
        store_row(k + t * k_row_stride + int64_t{h} * config_.head_dim, config_.head_dim, config_.dtype,
                  k_base + k_at * item);
        store_row(v + t * v_row_stride + int64_t{h} * config_.v_head_dim, config_.v_head_dim, config_.dtype,
                  v_base + v_at * item);
      }
    }
  };
  const auto rows = static_cast<int64_t>(slots.size());
  const int64_t row_elements = int64_t{config_.num_kv_heads} * (config_.head_dim + config_.v_head_dim);
  if (rows * row_elements < kMinParallelElements)
    write_rows(0, rows, 0);
  else
    stream.pool().parallel_ranges(rows, 1, write_rows);
}

}  // namespace fovea
