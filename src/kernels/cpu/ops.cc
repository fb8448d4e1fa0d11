#include "kernels/cpu/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/cpu_features.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/ops_kernels.h"

namespace fovea {
namespace {

using namespace ops_detail;

const OpsKernels& kernels() {
  switch (current_isa()) {
    case Isa::avx512: return kOpsAvx512;
    case Isa::avx2: return kOpsAvx2;
    case Isa::generic: break;
  }
  return kOpsGeneric;
}

constexpr int64_t kActivationCost = 4;  // an exp and a division, in elements

/// Rows of heads to rotate; row r uses row table_row(r) of the tables.
struct RotatedHeads {
  float* x;
  int64_t row_stride, rows;
  int heads, head_dim;
  int64_t half;
  const float *cos, *sin;
};

template <class TableRow>
void rotate_heads(bool interleaved, const RotatedHeads& t, ThreadPool& pool, const TableRow& table_row) {
  const OpsKernels& isa = kernels();
  for_rows(t.rows, t.rows * t.heads * 2 * t.half, pool, [&](int64_t r) {
    const float *cos = t.cos + table_row(r) * t.half, *sin = t.sin + table_row(r) * t.half;
    for (int64_t h = 0; h < t.heads; ++h) {
      float* head = t.x + r * t.row_stride + h * t.head_dim;
      if (interleaved)
        isa.rotate_interleaved(head, cos, sin, t.half);
      else
        isa.rotate(head, head + t.half, cos, sin, t.half);
    }
  });
}

/// A table_row function: row r uses the row of its position.
auto by_position(std::span<const int32_t> positions) {
  return [positions](int64_t r) { return int64_t{positions[static_cast<size_t>(r)]}; };
}

void rms_norm_row(const OpsKernels& isa, const float* x, const float* weight, float eps, float* y,
                  int64_t dim) {
  const float mean = isa.sum_of_squares(x, dim) / static_cast<float>(dim);
  isa.scale_by(x, 1.0f / std::sqrt(mean + eps), weight, y, dim);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kBlock = 1024;  // of a long row: fp32 inside a block, fp64 or an index across

}  // namespace

void rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
              int64_t rows, int64_t dim, ThreadPool& pool) {
  const OpsKernels& isa = kernels();
  for_rows(rows, rows * dim, pool,
           [&](int64_t r) { rms_norm_row(isa, x + r * x_stride, weight, eps, y + r * y_stride, dim); });
}

void rms_norm_heads(float* x, int64_t row_stride, int heads, int head_dim, const float* weight, float eps,
                    int64_t rows, ThreadPool& pool) {
  const OpsKernels& isa = kernels();
  for_rows(rows, rows * heads * head_dim, pool, [&](int64_t r) {
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x + r * row_stride + h * head_dim;
      rms_norm_row(isa, head, weight, eps, head, head_dim);
    }
  });
}

void layer_norm(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps, float* y,
                int64_t y_stride, int64_t rows, int64_t dim, ThreadPool& pool) {
  const OpsKernels& isa = kernels();
  for_rows(rows, rows * dim, pool, [&](int64_t r) {
    const float* row = x + r * x_stride;
    const auto size = static_cast<float>(dim);
    const float mean = isa.sum(row, dim) / size;
    const float variance = isa.sum_of_squares_about(row, mean, dim) / size;
    isa.normalise(row, mean, 1.0f / std::sqrt(variance + eps), weight, bias, y + r * y_stride, dim);
  });
}

void add_rows(float* x, int64_t x_stride, const float* y, int64_t y_stride, float scale, int64_t rows,
              int64_t dim, ThreadPool& pool) {
  const OpsKernels& isa = kernels();
  for_rows(rows, rows * dim, pool,
           [&](int64_t r) { isa.add_scaled(x + r * x_stride, y + r * y_stride, scale, dim); });
}

void scale_rows(float* x, int64_t x_stride, float scale, int64_t rows, int64_t dim, ThreadPool& pool) {
  const OpsKernels& isa = kernels();
  for_rows(rows, rows * dim, pool, [&](int64_t r) { isa.scale(x + r * x_stride, scale, dim); });
}

void softcap_rows(float* x, int64_t x_stride, float cap, int64_t rows, int64_t dim, ThreadPool& pool) {
  const OpsKernels& isa = kernels();
  for_rows(rows, rows * dim * kActivationCost, pool,
           [&](int64_t r) { isa.softcap(x + r * x_stride, cap, dim); });
}

void activate(Activation f, const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows,
              int64_t dim, ThreadPool& pool) {
  const auto row = kernels().activate[static_cast<size_t>(f)];
  for_rows(rows, rows * dim * kActivationCost, pool,
           [&](int64_t r) { row(x + r * x_stride, y + r * y_stride, dim); });
}

void activate_mul(Activation f, const float* gate, const float* up, int64_t in_stride, float* out,
                  int64_t out_stride, int64_t rows, int64_t dim, ThreadPool& pool) {
  const auto row = kernels().activate_mul[static_cast<size_t>(f)];
  for_rows(rows, rows * dim * kActivationCost, pool,
           [&](int64_t r) { row(gate + r * in_stride, up + r * in_stride, out + r * out_stride, dim); });
}

void rope_neox(float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
               std::span<const int32_t> positions, const float* cos, const float* sin, ThreadPool& pool) {
  const auto rows = static_cast<int64_t>(positions.size());
  rotate_heads(false, {x, row_stride, rows, heads, head_dim, rotary_dim / 2, cos, sin}, pool,
               by_position(positions));
}

void rope_interleaved(float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
                      std::span<const int32_t> positions, const float* cos, const float* sin,
                      ThreadPool& pool) {
  const auto rows = static_cast<int64_t>(positions.size());
  rotate_heads(true, {x, row_stride, rows, heads, head_dim, rotary_dim / 2, cos, sin}, pool,
               by_position(positions));
}

void rotate_rows(bool interleaved, float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
                 int64_t rows, const float* cos, const float* sin, ThreadPool& pool) {
  rotate_heads(interleaved, {x, row_stride, rows, heads, head_dim, rotary_dim / 2, cos, sin}, pool,
               [](int64_t r) { return r; });
}

void rope_rows(std::span<const double> frequencies, double factor, std::span<const int32_t> positions,
               float* cos, float* sin, ThreadPool& pool) {
  constexpr int64_t kCost = 100;  // a sine and a cosine in fp64, in elements
  const auto pairs = static_cast<int64_t>(frequencies.size()), rows = static_cast<int64_t>(positions.size());
  for_rows(rows, rows * pairs * kCost, pool, [&](int64_t row) {
    for (int64_t t = 0; t < pairs; ++t) {
      const double angle = positions[static_cast<size_t>(row)] * frequencies[static_cast<size_t>(t)];
      cos[row * pairs + t] = static_cast<float>(factor * std::cos(angle));
      sin[row * pairs + t] = static_cast<float>(factor * std::sin(angle));
    }
  });
}

double log_sum_exp(const float* x, int64_t n) {
  const OpsKernels& isa = kernels();
  float top = isa.max(x, n);
  // -inf: nothing but -inf and NaN. Any other shift shows which, without inf - inf.
  if (top == -kInfinity || top == kInfinity) top = 0.0f;
  double sum = 0;
  for (int64_t i = 0; i < n; i += kBlock)
    sum += static_cast<double>(isa.sum_exp(x + i, top, std::min(kBlock, n - i)));
  return static_cast<double>(top) + std::log(sum);
}

int64_t argmax(const float* x, int64_t n) {
  const OpsKernels& isa = kernels();
  float best = -kInfinity;
  int64_t first = 0, end = n;  // where `best` appears first; everywhere while it is -inf
  for (int64_t i = 0; i < n; i += kBlock) {
    const float top = isa.max(x + i, std::min(kBlock, n - i));
    if (top > best) {
      best = top;
      first = i;
      end = std::min(i + kBlock, n);
    }
  }
  for (int64_t i = first; i < end; ++i)
    if (x[i] == best) return i;
  return -1;
}

}  // namespace fovea
