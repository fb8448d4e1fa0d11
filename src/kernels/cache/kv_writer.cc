#include "kernels/cache/kv_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"

namespace fovea {
namespace {

// Scales are normal numbers, so that dividing by one loses nothing.
constexpr float kLeastTokenScale = 0x1p-126f;

/// The scale of one (token, head).
float token_scale(const kv_append::Kernels& kernels, const float* x, int n) {
  const float most = kernels.max_magnitude(x, n);
  return std::isnan(most) ? most : std::max(most / 127.0f, kLeastTokenScale);
}

std::byte* writable(const void* p) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(p));
}

}  // namespace

KvWriter::KvWriter(const KvView& view, int head_dim, int v_head_dim)
    : page_size_(view.page_size),
      scale_page_(view.scale_page_stride),
      scale_head_(view.scale_head_stride),
      scale_slot_(view.scale_slot_stride),
      kernels_(kv_append::current_kernels()) {
  const bool packed = view.form == KvForm::x_packed;
  k_ = {writable(view.k),
        view.dtype,
        head_dim,
        view.k_page_stride,
        view.k_head_stride,
        view.k_slot_stride,
        0,
        packed ? x_of(view.dtype) : head_dim,
        view.k_chunk_stride,
        view.k_scale,
        const_cast<float*>(view.k_scales)};
  v_ = {writable(view.v),
        view.dtype,
        v_head_dim,
        view.v_page_stride,
        view.v_head_stride,
        view.v_slot_stride,
        packed ? view.v_chunk_stride : 0,
        packed ? 1 : v_head_dim,
        packed ? view.v_dim_stride : 1,
        view.v_scale,
        const_cast<float*>(view.v_scales)};
}

void KvWriter::write(const Target& t, int64_t slot, int64_t head, const float* x) const {
  const int64_t page = slot / page_size_, offset = slot % page_size_;
  float scale = t.scale;
  if (t.scales != nullptr) {
    scale = token_scale(kernels_, x, t.n);
    t.scales[page * scale_page_ + head * scale_head_ + offset * scale_slot_] = scale;
    if (std::isnan(scale)) return;  // with a NaN scale, any code reads as NaN
  }
  const int64_t run = t.chunk == 0 ? 0 : offset / x_of(t.dtype), in_run = offset - run * x_of(t.dtype);
  store_row(t, x, page * t.page + head * t.head + run * t.chunk + in_run * t.slot, scale);
}

void KvWriter::store_row(const Target& t, const float* x, int64_t at, float scale) const {
  const auto item = static_cast<int64_t>(size_of(t.dtype));
  std::byte* out = t.data + at * item;
  if (t.run == 1) {  // single elements: rounded together, then scattered
    constexpr int kBlock = 64;
    alignas(64) std::byte block[kBlock * sizeof(float)];
    for (int c = 0; c < t.n; c += kBlock) {
      const int count = std::min(kBlock, t.n - c);
      kernels_.store(x + c, count, scale, t.dtype, block);
      for (int i = 0; i < count; ++i)
        std::memcpy(out + (c + i) * t.run_stride * item, block + i * item, static_cast<size_t>(item));
    }
    return;
  }
  for (int64_t c = 0, run = 0; c < t.n; c += t.run, ++run)
    kernels_.store(x + c, std::min<int64_t>(t.run, t.n - c), scale, t.dtype, out + run * t.run_stride * item);
}

void write_kv(const KvView& view, int num_kv_heads, int head_dim, int v_head_dim,
              std::span<const int64_t> slots, const float* k, int64_t k_row_stride, const float* v,
              int64_t v_row_stride, ThreadPool& pool) {
  const KvWriter writer(view, head_dim, v_head_dim);
  const int64_t capacity = view.num_pages * view.page_size;
  const auto write_row = [&](int64_t t) {
    const int64_t slot = slots[static_cast<size_t>(t)];
    if (slot < 0) return;
    FOVEA_CHECK(slot < capacity);
    for (int64_t h = 0; h < num_kv_heads; ++h) {
      writer.k(slot, h, k + t * k_row_stride + h * head_dim);
      writer.v(slot, h, v + t * v_row_stride + h * v_head_dim);
    }
  };
  constexpr int64_t kCost = 2;  // per element, for its conversion
  const auto rows = static_cast<int64_t>(slots.size());
  const int64_t row_elements = int64_t{num_kv_heads} * (head_dim + v_head_dim);
  for_rows(rows, rows * row_elements * kCost, pool, write_row);
}

}  // namespace fovea
