#pragma once
// The end of a unit in the narrow decode kernel: its warps' results become one, the output or a part of it.
#include "kernels/cuda/sm80/decode_narrow_tile.cuh"
#include "kernels/cuda/sm80/decode_parts.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::sm80 {

/// Warps leave their rows in one of two buffers and go on; one of them, each in its turn, sums the rows when
/// all are there. Only for the block's last unit do they work together. Sums have the same order in both.
template <class P>
struct NarrowEpilogue {
  using Block = BlockTeam<P::kThreads>;

  const AttentionParams& params;
  float* rows_shared;  ///< [2, kWarps, kRows, kMergePitch]
  float2* states;      ///< [2, kWarps, kRows]
  uint32_t barriers;   ///< two of buffers that are full, two of those that are free
  Block block;
  int units = 0;
  int pending = -1;        ///< the unit of a part that this warp has written, or -1
  int before = 0, count = 0;  ///< what arrive() said of it to lane 0, and of how many

  /// `shared`: P::kEpilogueBytes.
  __device__ NarrowEpilogue(const AttentionParams& p, char* shared)
      : params(p),
        rows_shared(reinterpret_cast<float*>(shared)),
        states(reinterpret_cast<float2*>(rows_shared + 2 * P::kMergeFloats)),
        barriers(shared_address(states + 2 * P::kStates)),
        block{reinterpret_cast<int*>(states + 2 * P::kStates + 4)} {
    if (threadIdx.x < 2) {
      mbarrier_init(barriers + 8 * threadIdx.x, P::kWarps);
      mbarrier_init(barriers + 16 + 8 * threadIdx.x, 1);
    }
    __syncthreads();
  }

  /// Unit `index`; others follow.
  __device__ void unit(const WorkItem& item, int head, int index, const NarrowTile<P>& tile) {
    const int rows = rows_of(item), buffer = units % 2, phase = units / 2 % 2;
    const int warp = threadIdx.x / 32;
    const bool sums = warp == units % P::kWarps;
    ++units;
    mbarrier_wait(barriers + 16 + 8 * buffer, phase ^ 1);
    put(tile, rows, buffer);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers + 8 * buffer);
    if (!sums) return;
    look();
    mbarrier_wait(barriers + 8 * buffer, phase);
    reduce<WarpTeam>(item, head, rows, buffer);
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barriers + 16 + 8 * buffer);
    if (item.num_splits == 1 || params.arrivals == nullptr) return;
    const PartGroup group = part_group(params, item, head);
    if (threadIdx.x % 32 == 0) before = arrive(group.counter, group.count);
    count = group.count;
    pending = index;
  }

  /// The block's last.
  __device__ void last_unit(const WorkItem& item, int head, const NarrowTile<P>& tile) {
    const int rows = rows_of(item), buffer = units % 2, phase = units / 2 % 2;
    look();
    mbarrier_wait(barriers + 16 + 8 * buffer, phase ^ 1);
    put(tile, rows, buffer);
    __syncthreads();
    reduce<Block>(item, head, rows, buffer);
    if (item.num_splits == 1 || params.arrivals == nullptr) return;
    __syncthreads();
    const PartGroup group = part_group(params, item, head);
    if (block.agree(threadIdx.x == 0 && arrive(group.counter, group.count) == group.count - 1))
      merge_group<P, kMergeFan>(block, params, item, head, rows);
  }

 private:
  __device__ int rows_of(const WorkItem& item) const {
    return min(P::kRows, item.n_q * static_cast<int>(params.group.divisor) - item.row_first);
  }

  /// Merges what the pending part was the last of. The answer has had a unit's time to arrive.
  __device__ void look() {
    if (pending < 0) return;
    if (__shfl_sync(~0u, before, 0) == count - 1) {
      const int index = params.kv_heads.quotient(pending);
      const WorkItem item = params.items[index];
      merge_group<P, kMergeStep>(WarpTeam{}, params, item,
                                 pending - index * static_cast<int>(params.kv_heads.divisor), rows_of(item));
    }
    pending = -1;
  }

  /// This warp's rows.
  __device__ void put(const NarrowTile<P>& tile, int rows, int buffer) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    float* const to = rows_shared + buffer * P::kMergeFloats + warp * P::kRows * P::kMergePitch;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float total = tile.sum[e];
#pragma unroll
      for (int step = 4; step < 32; step *= 2)
        total += __shfl_xor_sync(~0u, total, step);
      const int row = 2 * q + e;
      if (row >= rows) continue;
      if (g == 0) states[(buffer * P::kWarps + warp) * P::kRows + row] = make_float2(tile.maximum[e], total);
#pragma unroll
      for (int s = 0; s < P::kVSets; ++s) {
        const int first = (8 * s + g) * P::kVDims;
        if (P::kDv % (8 * P::kVDims) != 0 && first >= P::kDv) continue;
#pragma unroll
        for (int i = 0; i < P::kVDims; i += 4)
          *reinterpret_cast<float4*>(to + row * P::kMergePitch + first + i) =
              make_float4(tile.value(s, i, e), tile.value(s, i + 1, e), tile.value(s, i + 2, e),
                          tile.value(s, i + 3, e));
      }
    }
  }

  /// Sums the warps' rows in their order and writes them out.
  template <class Team>
  __device__ void reduce(const WorkItem& item, int head, int rows, int buffer) const {
    constexpr int kColumns = P::kDv / 4;
    for (int i = Team::rank(); i < rows * kColumns; i += Team::kSize) {
      const int row = i / kColumns, column = i % kColumns * 4;
      const float2* const state = states + buffer * P::kStates + row;
      const float* const from = rows_shared + buffer * P::kMergeFloats + row * P::kMergePitch + column;
      float top = state[0].x;
#pragma unroll
      for (int w = 1; w < P::kWarps; ++w)
        top = fmaxf(top, state[w * P::kRows].x);
      const float base = finite_max(top);
      float total = 0;
      float4 o = make_float4(0, 0, 0, 0);
#pragma unroll 4
      for (int w = 0; w < P::kWarps; ++w) {
        const float2 s = state[w * P::kRows];
        const float f = exp2_approx(s.x - base);
        const float4 x = *reinterpret_cast<const float4*>(from + w * P::kRows * P::kMergePitch);
        total = fmaf(s.y, f, total);
        o = make_float4(fmaf(x.x, f, o.x), fmaf(x.y, f, o.y), fmaf(x.z, f, o.z), fmaf(x.w, f, o.w));
      }
      if (item.num_splits == 1) {
        finish<typename P::Q>(params, item, head, row, column, o, top, total);
      } else {
        const int64_t at = partial_row(params, item.partial_first + item.split, head, row);
        __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), o);
        if (column == 0) store_state(params, at, top, total);
      }
    }
  }
};

}  // namespace fovea::cuda::sm80
