#pragma once
// y = x W^T + b. Weights are packed once, in their 16-bit form; activations and sums are fp32. Each output is
// one chain of fused multiply-adds over k = 0 .. K - 1, whatever M, the tiles and the threads are (those
// split N and M only): a row's result never depends on the other rows.
#include <cstdint>

#include "base/aligned.h"
#include "fovea/dtype.h"

namespace fovea {

class ThreadPool;

/// A view of W [n, k] in host memory, in the format of PackedMatrix.
struct PackedView {
  int64_t n = 0, k = 0;
  DType storage = DType::f32;
  const std::byte* data = nullptr;

  /// Reads row `row` back as fp32 [k] (embedding look-up from a tied matrix).
  void unpack_row(int64_t row, float* out) const;
  static constexpr int64_t kUnpackCost = 4;  // per element: each is in a different cache line (for_rows.h)
};

class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix& operator=(PackedMatrix&&) = default;

  /// Allocates for W [n, k] stored as `storage`; rows are added by pack_rows().
  PackedMatrix(int64_t n, int64_t k, DType storage);
  /// Packs `rows` rows of `source` [rows, k] (dtype `dtype`, contiguous, any alignment) as outputs
  /// [first, first + rows). Several calls build fused matrices (q, k, v in one).
  void pack_rows(int64_t first, int64_t rows, const void* source, DType dtype, ThreadPool& pool);

  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DType storage() const { return storage_; }
  const std::byte* data() const { return data_.data(); }
  int64_t bytes() const { return static_cast<int64_t>(data_.size()); }
  PackedView view() const { return {n_, k_, storage_, data()}; }
  operator PackedView() const { return view(); }
  void unpack_row(int64_t row, float* out) const { view().unpack_row(row, out); }
  static constexpr int64_t kUnpackCost = PackedView::kUnpackCost;

 private:
  int64_t n_ = 0, k_ = 0;
  DType storage_ = DType::f32;
  AlignedArray<std::byte> data_;
};

/// y[m][n] = sum_k x[m][k] W[n][k] (+ bias[n]). x [m, k] and y [m, n] fp32 with row strides in elements; bias
/// [n] or null. y must not overlap x.
void linear(const PackedView& weight, const float* x, int64_t x_stride, int64_t m, float* y, int64_t y_stride,
            const float* bias, ThreadPool& pool);

/// y[m][n] += sum_k x[m][k] W[n][k]: each output's chain begins with the value in y.
void linear_add(const PackedView& weight, const float* x, int64_t x_stride, int64_t m, float* y,
                int64_t y_stride, ThreadPool& pool);

}  // namespace fovea
