#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace fovea {
namespace {

constexpr int64_t kPanel = 32;  // outputs of a panel: one 64-byte line of 16-bit weights for each k

/// Place of output `column` in a panel's row. bf16 pairs columns c and c + 16 in one 32-bit word, so that a
/// shift and a mask widen a loaded vector into two.
int64_t place(DType storage, int64_t column) {
  return storage == DType::bf16 ? column % 16 * 2 + column / 16 : column;
}

float read_element(const std::byte* p, DType dtype) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return dtype == DType::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

void write_element(std::byte* p, DType dtype, float value) {
  if (dtype == DType::f32) {
    std::memcpy(p, &value, sizeof value);
    return;
  }
  const uint16_t bits = dtype == DType::bf16 ? float_to_bf16(value) : float_to_fp16(value);
  std::memcpy(p, &bits, sizeof bits);
}

}  // namespace

PackedMatrix::PackedMatrix(int64_t n, int64_t k, DType storage)
    : n_(n),
      k_(k),
      storage_(storage),
      data_(static_cast<size_t>((n + kPanel - 1) / kPanel * kPanel * k) * size_of(storage)) {
  const size_t panel_bytes = static_cast<size_t>(kPanel * k) * size_of(storage);
  if (n % kPanel != 0) std::memset(data_.data() + data_.size() - panel_bytes, 0, panel_bytes);
}

void PackedMatrix::pack_rows(int64_t first, int64_t rows, const void* source, DType dtype, ThreadPool& pool) {
  FOVEA_CHECK(first >= 0 && rows >= 0 && first + rows <= n_);
  const auto* src = static_cast<const std::byte*>(source);
  const size_t in = size_of(dtype), out = size_of(storage_);
  pool.parallel_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t n = first + r;
      std::byte* dst =
          data_.data() + static_cast<size_t>(n / kPanel * kPanel * k_ + place(storage_, n % kPanel)) * out;
      for (int64_t k = 0; k < k_; ++k)
        write_element(dst + static_cast<size_t>(k * kPanel) * out, storage_,
                      read_element(src + static_cast<size_t>(r * k_ + k) * in, dtype));
    }
  });
}

void PackedMatrix::unpack_row(int64_t row, float* out) const {
  FOVEA_CHECK(row >= 0 && row < n_);
  const size_t size = size_of(storage_);
  const std::byte* src =
      data_.data() + static_cast<size_t>(row / kPanel * kPanel * k_ + place(storage_, row % kPanel)) * size;
  for (int64_t k = 0; k < k_; ++k)
    out[k] = read_element(src + static_cast<size_t>(k * kPanel) * size, storage_);
}

void linear(const PackedMatrix& weight, const float* x, int64_t x_stride, int64_t m, float* y,
            int64_t y_stride, const float* bias, ThreadPool& pool) {
  const int64_t n = weight.n(), k = weight.k();
  const size_t size = size_of(weight.storage());
  pool.parallel_tasks((n + kPanel - 1) / kPanel, [&](int64_t panel, int) {
    const std::byte* w = weight.data() + static_cast<size_t>(panel * kPanel * k) * size;
    const int64_t columns = std::min(kPanel, n - panel * kPanel);
    for (int64_t row = 0; row < m; ++row) {
      float sum[kPanel] = {};
      for (int64_t i = 0; i < k; ++i)
        for (int64_t c = 0; c < kPanel; ++c)
          sum[c] += x[row * x_stride + i] *
                    read_element(w + static_cast<size_t>(i * kPanel + place(weight.storage(), c)) * size,
                                 weight.storage());
      for (int64_t c = 0; c < columns; ++c)
        y[row * y_stride + panel * kPanel + c] = sum[c] + (bias ? bias[panel * kPanel + c] : 0.0f);
    }
  });
}

}  // namespace fovea
