#include "kernels/cache/ds_mla.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"
#include "base/float8.h"
#include "kernels/cpu/for_rows.h"

namespace fovea {
namespace {

/// The least power of two that is at least x, which is positive and finite.
float power_of_two_from(float x) {
  int exponent = 0;
  if (std::frexp(x, &exponent) == 0.5f) --exponent;
  return std::ldexp(1.0f, exponent);
}

}  // namespace

void store_ds_mla(const float* x, int rank, int rope, std::byte* record) {
  constexpr float kLeast = 1e-4f;
  for (int64_t group = 0; group < rank / kDsMlaGroup; ++group) {
    const float* in = x + group * kDsMlaGroup;
    float most = 0;
    for (int c = 0; c < kDsMlaGroup; ++c)
      if (std::isfinite(in[c])) most = std::max(most, std::abs(in[c]));
    const float scale = power_of_two_from(std::max(most / kE4m3Max, kLeast));
    for (int c = 0; c < kDsMlaGroup; ++c)
      record[group * kDsMlaGroup + c] = std::byte{float_to_e4m3(in[c] / scale)};
    std::memcpy(record + ds_mla_scales(rank) + group * 4, &scale, sizeof scale);
  }
  for (int c = 0; c < rope; ++c) {
    const uint16_t bits = float_to_bf16(x[rank + c]);
    std::memcpy(record + ds_mla_rope(rank) + c * int64_t{2}, &bits, sizeof bits);
  }
}

void load_ds_mla(const std::byte* record, int rank, int rope, float* x) {
  for (int group = 0; group < rank / kDsMlaGroup; ++group) {
    float scale = 0;
    std::memcpy(&scale, record + ds_mla_scales(rank) + group * int64_t{4}, sizeof scale);
    for (int c = group * kDsMlaGroup; c < (group + 1) * kDsMlaGroup; ++c)
      x[c] = e4m3_to_float(static_cast<uint8_t>(record[c])) * scale;
  }
  for (int c = 0; c < rope; ++c) {
    uint16_t bits = 0;
    std::memcpy(&bits, record + ds_mla_rope(rank) + c * int64_t{2}, sizeof bits);
    x[rank + c] = bf16_to_float(bits);
  }
}

void write_ds_mla(const KvView& view, int rank, int rope, std::span<const int64_t> slots, const float* rows,
                  int64_t stride, ThreadPool& pool) {
  constexpr int64_t kCost = 8;  // of rounding an element
  auto* base = static_cast<std::byte*>(const_cast<void*>(view.k));
  for_rows(static_cast<int64_t>(slots.size()), static_cast<int64_t>(slots.size()) * (rank + rope) * kCost,
           pool, [&](int64_t row) {
             const int64_t at = slots[static_cast<size_t>(row)];
             if (at < 0) return;
             FOVEA_CHECK(at < view.num_pages * view.page_size);
             store_ds_mla(
                 rows + row * stride, rank, rope,
                 base + at / view.page_size * view.k_page_stride + at % view.page_size * view.k_slot_stride);
           });
}

}  // namespace fovea
