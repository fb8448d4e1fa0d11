#pragma once
// Combines the partial results of MLA rows whose keys were split, in the order of the splits. Rows of 512
// columns of fp32: what matters is to have enough loads in flight.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/mla/policy.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::mla {

inline constexpr int kCombineThreads = kDv / 4;              ///< a thread has four columns
inline constexpr int kCombineCtas = 2048 / kCombineThreads;  ///< that an SM holds
/// CTAs that share the rows of an item: of one split of a row tile.
inline constexpr int kCombineShares = 4;

/// This lane's state of split first + lane, as (largest score, sum).
__device__ __forceinline__ float2 combine_state(const AttentionParams& p, int64_t at, int64_t stride,
                                                int first, int count) {
  const int split = first + lane_id();
  return split < count ? load_state(p, at + split * stride) : make_float2(-INFINITY, 0);
}

template <class Query>
__device__ void combine_row(const AttentionParams& p, const WorkItem& item, int row) {
  constexpr int kLoads = 8;  // in flight
  const int count = item.num_splits;
  const int64_t at = partial_row(p, item.partial_first, 0, row), stride = p.partial_rows;
  const int column = static_cast<int>(threadIdx.x) * 4;
  const float* const from = p.partial_out + at * kDv + column;
  float top = -INFINITY;
  for (int first = 0; first < count; first += 32)
    top = fmaxf(top, combine_state(p, at, stride, first, count).x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  const float base = finite_max(top);
  float total = 0;
  float4 o = make_float4(0, 0, 0, 0);
  for (int first = 0; first < count; first += 32) {
    const float2 state = combine_state(p, at, stride, first, count);
    const float weight = planted_weight(exp2_approx(state.x - base), first + lane_id(), count);
    for (int begin = 0; begin < min(32, count - first); begin += kLoads) {
      float4 x[kLoads];
      // Neither loads nor sums have conditions, so that the loads are in flight together.
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int split = min(first + begin + i, count - 1);
        x[i] = __ldcg(reinterpret_cast<const float4*>(from + split * stride * kDv));
      }
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        // The weight is 0 past the last split.
        const float f = __shfl_sync(~0u, weight, begin + i);
        total = fmaf(__shfl_sync(~0u, state.y, begin + i), f, total);
        o = make_float4(fmaf(x[i].x, f, o.x), fmaf(x[i].y, f, o.y), fmaf(x[i].z, f, o.z),
                        fmaf(x[i].w, f, o.w));
      }
    }
  }
  finish<Query>(p, item, 0, row, column, o, top, total);
}

template <class Query>
__global__ __launch_bounds__(kCombineThreads,
                             8) void combine_splits(const __grid_constant__ AttentionParams p) {
  grid_launch_dependents();
  grid_dependency_wait();
  const int shares = *p.num_items * kCombineShares;
  for (int share = static_cast<int>(blockIdx.x); share < shares; share += static_cast<int>(gridDim.x)) {
    const WorkItem& item = p.items[share / kCombineShares];
    const int count = item.num_splits;
    if (count == 1) continue;
    const int rows = min(p.partial_rows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
    for (int row = item.split * kCombineShares + share % kCombineShares; row < rows;
         row += count * kCombineShares)
      combine_row<Query>(p, item, row);
  }
}

}  // namespace fovea::cuda::mla
