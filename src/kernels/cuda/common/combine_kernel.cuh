#pragma once
// The combine kernel: reduces the partial results of rows whose keys were split, in an order that depends
// only on their number and Dv. (A reduction by the last-arriving CTA would need a fence and an atomic for
// each partial result; this needs a launch.)
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda {

inline constexpr int kCombineThreads = 256;

/// Columns of a task, in groups of four. A row with few splits is one task; a row with many is cut into
/// several, for more CTAs and for more lanes over the splits.
__device__ __forceinline__ int combine_columns(const AttentionParams& p, int num_splits) {
  return num_splits < 32 ? p.partial_columns / 4 : 8;
}

/// Combines some columns of one row: thread (column, lane) sums splits lane, lane + lanes, ...; then the
/// lanes' sums are added in order.
template <class Q>
__device__ void combine_row(const AttentionParams& p, const WorkItem& item, int head, int row,
                            int first_column, int columns, float4* sums, float* totals) {
  const int lanes = kCombineThreads / columns;
  const int column = static_cast<int>(threadIdx.x) % columns, lane = static_cast<int>(threadIdx.x) / columns;
  const int64_t stride = static_cast<int64_t>(p.kv_heads.divisor) * p.partial_rows;
  const int64_t at = partial_row(p, item.partial_first, head, row);
  float top = -INFINITY;
  for (int s = static_cast<int>(threadIdx.x) % 32; s < item.num_splits; s += 32)
    top = fmaxf(top, load_state(p, at + s * stride).x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  const float base = finite_max(top);
  float total = 0;
  float4 o = make_float4(0, 0, 0, 0);
  const bool inside = lane < lanes && first_column + 4 * column < p.partial_columns;
#pragma unroll 4
  for (int s = lane; inside && s < item.num_splits; s += lanes) {
    const float2 state = load_state(p, at + s * stride);
    const float4 x = __ldcg(reinterpret_cast<const float4*>(
                                p.partial_out + (at + s * stride) * p.partial_columns + first_column) +
                            column);
    const float f = planted_weight(exp2_approx(state.x - base), s, item.num_splits);
    total = fmaf(state.y, f, total);
    o = make_float4(fmaf(x.x, f, o.x), fmaf(x.y, f, o.y), fmaf(x.z, f, o.z), fmaf(x.w, f, o.w));
  }
  sums[threadIdx.x] = o;
  if (column == 0 && lane < lanes) totals[lane] = total;
  __syncthreads();
  if (lane == 0 && inside) {
    const int used = min(lanes, item.num_splits);
    for (int l = 1; l < used; ++l) {
      const float4 x = sums[l * columns + column];
      o = make_float4(o.x + x.x, o.y + x.y, o.z + x.z, o.w + x.w);
      total += totals[l];
    }
    finish<Q>(p, item, head, row, first_column + 4 * column, o, top, total);
  }
  __syncthreads();
}

/// A row tile of n splits has n items; item k does tasks k, k + n, ... of the tile.
template <class Q>
__global__ __launch_bounds__(kCombineThreads) void combine_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ float4 sums[kCombineThreads];
  __shared__ float totals[kCombineThreads];
  grid_launch_dependents();
  grid_dependency_wait();
  if (p.queue != nullptr && blockIdx.x == 0 && threadIdx.x == 0) *p.queue = 0;  // for the next layer
  const int num_units = *p.num_items * static_cast<int>(p.kv_heads.divisor);
  for (int unit = static_cast<int>(blockIdx.x); unit < num_units; unit += static_cast<int>(gridDim.x)) {
    const int index = p.kv_heads.quotient(unit);
    const int head = unit - index * static_cast<int>(p.kv_heads.divisor);
    const WorkItem item = p.items[index];
    if (item.num_splits == 1) continue;
    const int rows = min(p.partial_rows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
    const int columns = combine_columns(p, item.num_splits);
    const int groups = (p.partial_columns / 4 + columns - 1) / columns;
    for (int task = item.split; task < rows * groups; task += item.num_splits)
      combine_row<Q>(p, item, head, task / groups, task % groups * (4 * columns), columns, sums, totals);
  }
}

}  // namespace fovea::cuda
