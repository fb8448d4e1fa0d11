#include "kernels/cpu/moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/cpu_features.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/moe_kernels.h"

namespace fovea {
namespace {

using namespace moe_detail;

const MoeKernels& kernels() {
  switch (current_isa()) {
    case Isa::avx512: return kMoeAvx512;
    case Isa::avx2: return kMoeAvx2;
    case Isa::generic: break;
  }
  return kMoeGeneric;
}

bool above(float a, float b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

}  // namespace

void largest(const float* x, int n, int k, int32_t* ids) {
  FOVEA_CHECK(k > 0 && k <= n);
  int count = 0;
  for (int i = 0; i < n; ++i) {
    if (count == k && !above(x[i], x[ids[k - 1]])) continue;
    int at = count < k ? count++ : k - 1;  // the last falls out
    for (; at > 0 && above(x[i], x[ids[at - 1]]); --at)
      ids[at] = ids[at - 1];
    ids[at] = i;
  }
}

void softmax(float* x, int64_t n) {
  const float top = *std::max_element(x, x + n);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += x[i] = std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i)
    x[i] /= sum;
}

void gather_rows(const float* x, int64_t x_stride, std::span<const int32_t> rows, const float* scales,
                 float* y, int64_t dim, ThreadPool& pool) {
  const MoeKernels& isa = kernels();
  const auto count = static_cast<int64_t>(rows.size());
  for_rows(count, count * dim, pool, [&](int64_t r) {
    const float* from = x + rows[static_cast<size_t>(r)] * x_stride;
    if (scales)
      isa.scale(from, scales[r], y + r * dim, dim);
    else
      std::memcpy(y + r * dim, from, static_cast<size_t>(dim) * sizeof(float));
  });
}

void scatter_add_rows(float* x, int64_t x_stride, std::span<const int32_t> rows, const float* scales,
                      const float* y, int64_t dim, ThreadPool& pool) {
  const MoeKernels& isa = kernels();
  const auto count = static_cast<int64_t>(rows.size());
  for_rows(count, count * dim, pool, [&](int64_t r) {
    isa.add_scaled(x + rows[static_cast<size_t>(r)] * x_stride, scales ? scales[r] : 1.0f, y + r * dim, dim);
  });
}

void clamped_swiglu(const float* gate, const float* up, int64_t in_stride, float limit, float* out,
                    int64_t out_stride, int64_t rows, int64_t dim, ThreadPool& pool) {
  const MoeKernels& isa = kernels();
  constexpr int64_t kCost = 4;  // an exp and a division
  for_rows(rows, rows * dim * kCost, pool, [&](int64_t r) {
    isa.clamped_swiglu(gate + r * in_stride, up + r * in_stride, limit, out + r * out_stride, dim);
  });
}

}  // namespace fovea
