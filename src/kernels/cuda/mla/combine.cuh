#pragma once
// Combines the partial results of MLA rows whose keys were split. What matters is to have enough loads in
// flight. The order of a row's sums follows from the number of its splits.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/mla/policy.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::mla {

inline constexpr int kCombineThreads = 512, kCombineCtas = 2;  ///< of an SM
/// CTAs that share the rows of an item, which is one split of a row tile.
inline constexpr int kCombineShares = 4;
/// Splits that one group of threads sums; more are divided between all groups of a CTA, of which each has
/// kCombineBatch loads in flight.
inline constexpr int kCombineSplits = 8, kCombineBatch = 4;

/// Four columns of a partial result, or zeros. In PTX, as a branch would keep loads from being in flight
/// together.
__device__ __forceinline__ float4 load_partial(const float* from, bool exists) {
  float4 x;
  asm("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, "
      "0;\n"
      "@p ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&f"(x.x), "=&f"(x.y), "=&f"(x.z), "=&f"(x.w)
      : "l"(from), "r"(static_cast<int>(exists)));
  return x;
}

/// A row being summed by a group of kValue / 4 threads, each with four columns.
template <int kValue>
struct CombinedRow {
  float4 o = make_float4(0, 0, 0, 0);
  float total = 0;

  /// Adds splits first, first + 1, ... before `last` (at most kLoads) of the row whose first partial
  /// result is `at`; `base` is the row's largest score.
  template <int kLoads, class Base>
  __device__ void add(const AttentionParams& p, int64_t at, int64_t stride, int column, int first, int last,
                      int count, Base&& base) {
    float4 x[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      x[i] = load_partial(p.partial_out + (at + (first + i) * stride) * kValue + column, first + i < last);
    const int split = first + lane_id();
    const float2 state =
        split < last && lane_id() < kLoads ? load_state(p, at + split * stride) : make_float2(-INFINITY, 0);
    const float weight = planted_weight(exp2_approx(state.x - base(state.x)), split, count);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float f = __shfl_sync(~0u, weight, i);  // 0 past the last
      total = fmaf(__shfl_sync(~0u, state.y, i), f, total);
      o = make_float4(fmaf(x[i].x, f, o.x), fmaf(x[i].y, f, o.y), fmaf(x[i].z, f, o.z), fmaf(x[i].w, f, o.w));
    }
  }
};

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

template <class Query, int kValue>
__global__ __launch_bounds__(kCombineThreads,
                             kCombineCtas) void combine_splits(const __grid_constant__ AttentionParams p) {
  constexpr int kColumns = kValue / 4, kGroups = kCombineThreads / kColumns;
  __shared__ float4 sums[kCombineThreads];
  __shared__ float totals[kGroups];
  grid_launch_dependents();
  grid_dependency_wait();
  const int group = static_cast<int>(threadIdx.x) / kColumns;
  const int column = static_cast<int>(threadIdx.x) % kColumns * 4;
  const int64_t stride = p.partial_rows;
  const int shares = *p.num_items * kCombineShares;
  for (int share = static_cast<int>(blockIdx.x); share < shares; share += static_cast<int>(gridDim.x)) {
    const WorkItem& item = p.items[share / kCombineShares];
    const int count = item.num_splits;
    if (count == 1) continue;
    const int rows = min(p.partial_rows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
    const int part = item.split * kCombineShares + share % kCombineShares, parts = count * kCombineShares;
    if (count <= kCombineSplits) {
      for (int row = part * kGroups + group; row < rows; row += parts * kGroups) {
        CombinedRow<kValue> sum;
        float top = -INFINITY;
        sum.template add<kCombineSplits>(
            p, partial_row(p, item.partial_first, 0, row), stride, column, 0, count, count,
            [&top](float largest) { return finite_max(top = warp_max(largest)); });
        finish<Query>(p, item, 0, row, column, sum.o, top, sum.total);
      }
      continue;
    }
    for (int row = part; row < rows; row += parts) {
      const int64_t at = partial_row(p, item.partial_first, 0, row);
      float top = -INFINITY;
      for (int split = lane_id(); split < count; split += 32)
        top = fmaxf(top, load_state(p, at + split * stride).x);
      top = warp_max(top);
      CombinedRow<kValue> sum;
      const int each = (count + kGroups - 1) / kGroups, last = min(count, (group + 1) * each);
      for (int first = group * each; first < last; first += kCombineBatch)
        sum.template add<kCombineBatch>(p, at, stride, column, first, min(last, first + kCombineBatch), count,
                                        [top](float) { return finite_max(top); });
      sums[threadIdx.x] = sum.o;
      if (column == 0) totals[group] = sum.total;
      __syncthreads();
      if (group == 0) {
        for (int g = 1; g < kGroups; ++g) {
          const float4 x = sums[g * kColumns + threadIdx.x];
          sum.o = make_float4(sum.o.x + x.x, sum.o.y + x.y, sum.o.z + x.z, sum.o.w + x.w);
          sum.total += totals[g];
        }
        finish<Query>(p, item, 0, row, column, sum.o, top, sum.total);
      }
      __syncthreads();
    }
  }
}

}  // namespace fovea::cuda::mla
