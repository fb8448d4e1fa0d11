#pragma once
// What a mixture of experts adds to the row-wise operations: choosing experts, collecting their rows, adding
// their results, and gpt-oss's activation. A row's bits never depend on the others or on the threads.
#include <cstdint>
#include <span>

namespace fovea {

class ThreadPool;

/// ids [k] = where the k <= n largest of x [n] are, in descending order. NaN is above everything, as in
/// torch.topk; of equal values the lower index comes first. torch.topk promises no order among equals (on a
/// CPU it is what std::nth_element leaves, on a GPU another), so that ours is one of those it may give.
void largest(const float* x, int n, int k, int32_t* ids);

/// x = e^x / sum of e^x over [0, n), in place; all NaN when a NaN or +inf is among them, or -inf only.
void softmax(float* x, int64_t n);

/// y [rows.size(), dim], contiguous: row i = x row rows[i], times scales[i] where scales isn't null.
void gather_rows(const float* x, int64_t x_stride, std::span<const int32_t> rows, const float* scales,
                 float* y, int64_t dim, ThreadPool& pool);

/// x row rows[i] += scales[i] * y row i (scales null: 1); rows are distinct, y is contiguous.
void scatter_add_rows(float* x, int64_t x_stride, std::span<const int32_t> rows, const float* scales,
                      const float* y, int64_t dim, ThreadPool& pool);

/// gpt-oss: with g = min(gate, limit) and u = clamp(up, -limit, limit), out = (u + 1) * g * sigmoid(1.702 g).
void clamped_swiglu(const float* gate, const float* up, int64_t in_stride, float limit, float* out,
                    int64_t out_stride, int64_t rows, int64_t dim, ThreadPool& pool);

}  // namespace fovea
