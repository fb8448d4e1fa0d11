#pragma once
// Row-wise operations of a transformer layer, fp32, vectorised. Rows are independent: a row's bits never
// depend on the others or on the threads.
#include <cstdint>
#include <span>

#include "kernels/cpu/activation.h"

namespace fovea {

class ThreadPool;

/// y = x / sqrt(mean(x^2) + eps) * weight, for `rows` rows of `dim`. In place (y == x) is allowed.
void rms_norm(const float* x, int64_t x_stride, const float* weight, float eps, float* y, int64_t y_stride,
              int64_t rows, int64_t dim, ThreadPool& pool);

/// rms_norm of each head of x [rows, heads, head_dim] in place, rows `row_stride` apart.
void rms_norm_heads(float* x, int64_t row_stride, int heads, int head_dim, const float* weight, float eps,
                    int64_t rows, ThreadPool& pool);

/// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, likewise; the variance divides by dim.
void layer_norm(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps, float* y,
                int64_t y_stride, int64_t rows, int64_t dim, ThreadPool& pool);

/// x += scale * y, for rows of `dim`; the sum is rounded once (also at scale = 1).
void add_rows(float* x, int64_t x_stride, const float* y, int64_t y_stride, float scale, int64_t rows,
              int64_t dim, ThreadPool& pool);

/// x *= scale.
void scale_rows(float* x, int64_t x_stride, float scale, int64_t rows, int64_t dim, ThreadPool& pool);

/// x = cap * tanh(x / cap).
void softcap_rows(float* x, int64_t x_stride, float cap, int64_t rows, int64_t dim, ThreadPool& pool);

/// y = f(x). In place (y == x) is allowed.
void activate(Activation f, const float* x, int64_t x_stride, float* y, int64_t y_stride, int64_t rows,
              int64_t dim, ThreadPool& pool);

/// out = f(gate) * up. In place (out == gate or up) is allowed.
void activate_mul(Activation f, const float* gate, const float* up, int64_t in_stride, float* out,
                  int64_t out_stride, int64_t rows, int64_t dim, ThreadPool& pool);

/// Rotates the first `rotary_dim` elements of each head in place, NeoX style (pairs t, t + rotary_dim / 2),
/// by positions[row]; cos and sin are tables [max_position, rotary_dim / 2].
void rope_neox(float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
               std::span<const int32_t> positions, const float* cos, const float* sin, ThreadPool& pool);

/// The same, GPT-J style: pairs (2t, 2t + 1).
void rope_interleaved(float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
                      std::span<const int32_t> positions, const float* cos, const float* sin,
                      ThreadPool& pool);

/// cos and sin [T, frequencies.size()] of positions[T] x frequencies, times `factor`, in fp64 rounded once to
/// fp32. A row depends on its position only.
void rope_rows(std::span<const double> frequencies, double factor, std::span<const int32_t> positions,
               float* cos, float* sin, ThreadPool& pool);

/// rope_neox or rope_interleaved with one row of cos and sin per row: row r uses row r of the tables.
void rotate_rows(bool interleaved, float* x, int64_t row_stride, int heads, int head_dim, int rotary_dim,
                 int64_t rows, const float* cos, const float* sin, ThreadPool& pool);

/// log of the sum of e^x over [0, n), and the index of the largest x (lowest on a tie; NaN is never largest,
/// -1 when every x is NaN).
double log_sum_exp(const float* x, int64_t n);
int64_t argmax(const float* x, int64_t n);

}  // namespace fovea
