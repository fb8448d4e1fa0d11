#include "kernels/cpu/ops.h"

#include <cmath>
#include <limits>

namespace fovea {

void rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
              int64_t rows, int64_t dim, ThreadPool&) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * x_stride;
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i)
      sum += static_cast<double>(in[i]) * in[i];
    const float scale = 1.0f / std::sqrt(static_cast<float>(sum / static_cast<double>(dim)) + eps);
    for (int64_t i = 0; i < dim; ++i)
      y[r * y_stride + i] = in[i] * scale * weight[i];
  }
}

void add_rows(float* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t rows, int64_t dim,
              ThreadPool&) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < dim; ++i)
      x[r * x_stride + i] += y[r * y_stride + i];
}

void silu_mul(const float* gate, const float* up, int64_t in_stride, float* out, int64_t out_stride,
              int64_t rows, int64_t dim, ThreadPool&) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < dim; ++i) {
      const float z = gate[r * in_stride + i];
      out[r * out_stride + i] = z / (1.0f + std::exp(-z)) * up[r * in_stride + i];
    }
}

void rope_neox(float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
               std::span<const int32_t> positions, const float* cos, const float* sin, ThreadPool&) {
  const int64_t half = rotary_dim / 2;
  for (size_t r = 0; r < positions.size(); ++r)
    for (int h = 0; h < heads; ++h) {
      float* head = x + static_cast<int64_t>(r) * row_stride + static_cast<int64_t>(h) * head_dim;
      for (int64_t t = 0; t < half; ++t) {
        const float c = cos[positions[r] * half + t], s = sin[positions[r] * half + t];
        const float a = head[t], b = head[t + half];
        head[t] = a * c - b * s;
        head[t + half] = b * c + a * s;
      }
    }
}

double log_sum_exp(const float* x, int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i)
    if (!(x[i] <= top)) top = x[i];
  if (!(std::fabs(top) < std::numeric_limits<float>::infinity())) return top;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += std::exp(static_cast<double>(x[i]) - top);
  return top + std::log(sum);
}

int64_t argmax(const float* x, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i)
    if (!std::isnan(x[i]) && (best < 0 || x[i] > x[best])) best = i;
  return best;
}

}  // namespace fovea
