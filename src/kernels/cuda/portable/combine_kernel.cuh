#pragma once
// The combine kernel: reduces the partial results of rows whose keys were split, from the first to the last.
#include "kernels/cuda/portable/finish.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::portable {

inline constexpr int kCombineThreads = 128;

/// A thread computes four columns of a row. A row tile with n splits has n work items; each combines its
/// share of the rows.
__global__ __launch_bounds__(kCombineThreads) void combine_kernel(const __grid_constant__ AttentionParams p,
                                                                  const __grid_constant__ Access access) {
  const int heads = static_cast<int>(p.kv_heads.divisor);
  const int columns = p.partial_columns / 4, rows_at_once = kCombineThreads / columns;
  const int column = static_cast<int>(threadIdx.x) % columns, first = static_cast<int>(threadIdx.x) / columns;
  const int64_t work_tiles = static_cast<int64_t>(*p.num_items) * heads;
  const int64_t stride = static_cast<int64_t>(heads) * p.partial_rows;
  for (int64_t work_index = blockIdx.x; work_index < work_tiles; work_index += gridDim.x) {
    const int index = static_cast<int>(work_index / heads), head = static_cast<int>(work_index % heads);
    const WorkItem& item = p.items[index];
    const int splits = item.num_splits;
    if (splits == 1) continue;
    const int rows = min(p.partial_rows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
    for (int row = item.split * rows_at_once + first; row < rows; row += splits * rows_at_once) {
      const int64_t at = partial_row(p, item.partial_first, head, row);
      CombinedState combined;
      float o[4] = {0, 0, 0, 0};
#pragma unroll 4
      for (int s = 0; s < splits; ++s) {
        const float2 state = load_state(p, at + s * stride);
        const float4 x = __ldcg(
            reinterpret_cast<const float4*>(p.partial_out + (at + s * stride) * p.partial_columns) + column);
        CombineFactors f = combine_state(combined, state.x, state.y);
        f.add = planted_weight(f.add, s, splits);
        o[0] = combine(o[0], x.x, f), o[1] = combine(o[1], x.y, f);
        o[2] = combine(o[2], x.z, f), o[3] = combine(o[3], x.w, f);
      }
      const RowContext r = row_context(p, item, item.row_first + row, head);
      const float f = finish_row_and_store_lse(p, item, r, combined.maximum, combined.sum, column == 0);
#pragma unroll
      for (float& x : o)
        x *= f;
      if (4 * column < p.v_head_dim) store_row<4>(p, access, item.q_first + r.row, r.head, 4 * column, o);
    }
  }
}

}  // namespace fovea::cuda::portable
