#pragma once
// The epilogue of a work tile of the narrow decode kernel: combines the results of the warps into the output
// or into a partial result, and reduces the partial results in the last-arriving CTA.
#include "kernels/cuda/common/partials.cuh"
#include "kernels/cuda/sm80/decode_narrow_tile.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

template <class P>
struct NarrowEpilogue {
  const AttentionParams& params;
  float* rows_shared;  ///< [2, kWarps, kRows, kCombinePitch]
  float2* states;      ///< [2, kWarps, kRows]
  int* last;           ///< result of arrive_last(), in the padding of the last row
  int buffer = 0;

  /// `shared`: P::kEpilogueBytes.
  __device__ NarrowEpilogue(const AttentionParams& p, char* shared)
      : params(p),
        rows_shared(reinterpret_cast<float*>(shared)),
        states(reinterpret_cast<float2*>(rows_shared + 2 * P::kCombineFloats)),
        last(reinterpret_cast<int*>(rows_shared + 2 * P::kCombineFloats - (P::kCombinePitch - P::kDv))) {}

  /// `Loads`: partial results that a thread has in flight while it combines them.
  template <int Loads>
  __device__ void store(const WorkItem& item, int head, const NarrowTile<P>& tile) {
    const int rows = min(P::kRows, item.n_q * static_cast<int>(params.group.divisor) - item.row_first);
    // Two buffers: a warp writes one again only after all warps have read it.
    buffer ^= 1;
    put(tile, rows, buffer);
    __syncthreads();
    reduce(item, head, rows, buffer);
    if (item.num_splits == 1 || params.arrivals == nullptr) return;
    const SplitGroup group = split_group(params, item, head);
    __syncthreads();
    if (threadIdx.x == 0) *last = arrive_last(group.counter, group.count);
    __syncthreads();
    if (*last == 0) return;
    for (int row = threadIdx.x / 32; row < rows; row += P::kWarps)
      combine_group_row<P, Loads>(params, item, head, row);
  }

 private:
  /// Writes this warp's rows to shared memory.
  __device__ void put(const NarrowTile<P>& tile, int rows, int buffer) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    float* const to = rows_shared + buffer * P::kCombineFloats + warp * P::kRows * P::kCombinePitch;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float total = tile.row_sum[e];
#pragma unroll
      for (int step = 4; step < 32; step *= 2)
        total += __shfl_xor_sync(~0u, total, step);
      const int row = 2 * q + e;
      if (row >= rows) continue;
      if (g == 0) states[(buffer * P::kWarps + warp) * P::kRows + row] = make_float2(tile.row_max[e], total);
#pragma unroll
      for (int s = 0; s < P::kVSets; ++s) {
        const int first = (8 * s + g) * P::kVDims;
        if (P::kDv % (8 * P::kVDims) != 0 && first >= P::kDv) continue;
#pragma unroll
        for (int i = 0; i < P::kVDims; i += 4)
          *reinterpret_cast<float4*>(to + row * P::kCombinePitch + first + i) = make_float4(
              tile.value(s, i, e), tile.value(s, i + 1, e), tile.value(s, i + 2, e), tile.value(s, i + 3, e));
      }
    }
  }

  /// Sums the rows over the warps, in order, and writes them out.
  __device__ void reduce(const WorkItem& item, int head, int rows, int buffer) const {
    constexpr int kColumns = P::kDv / 4;
    for (int i = threadIdx.x; i < rows * kColumns; i += P::kThreads) {
      const int row = i / kColumns, column = i % kColumns * 4;
      const float2* const state = states + buffer * P::kStates + row;
      const float* const from = rows_shared + buffer * P::kCombineFloats + row * P::kCombinePitch + column;
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
        const float f = planted_group_weight(exp2_approx(s.x - base), w, P::kWarps);
        const float4 x = *reinterpret_cast<const float4*>(from + w * P::kRows * P::kCombinePitch);
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
