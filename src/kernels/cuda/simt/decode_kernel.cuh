#pragma once
// Decode on CUDA cores: up to P::kRows packed query rows of a sequence against its keys, split at absolute
// multiples of P::kSplitKeys. Persistent CTAs take work tiles (a WorkItem under one KV head) by stride, and
// their loads are prefetched across work tiles; the warps of a CTA meet only at the end of a work tile.
#include "kernels/cuda/simt/decode_tile.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::simt {

/// The epilogue of a work tile: combines the results of the warps into the output or into a partial result.
template <class P>
struct DecodeEpilogue {
  const AttentionParams& params;
  const bool half;     ///< queries and outputs are fp16, not bf16
  float* rows_shared;  ///< shared [kWarps, kCombineRows, kD]
  float2* states;      ///< shared [kWarps, kRows] maximum and sum

  __device__ void store(const DecodeWorkTile& work, DecodeTile<P>& tile, const LanePlace<P>& place) const {
    const int warp = threadIdx.x / 32;
    const int rows =
        min(P::kRows, work.item.n_q * static_cast<int>(params.group.divisor) - work.item.row_first);
    __syncthreads();  // the rows of the previous work tile have been read
#pragma unroll
    for (int r = 0; r < P::kRows; ++r) {
#pragma unroll
      for (int step = 16; step >= P::kSharers; step /= 2)
        tile.row_sum[r] += __shfl_xor_sync(~0u, tile.row_sum[r], step);
      if (place.lane == 0) states[warp * P::kRows + r] = make_float2(tile.row_max[r], tile.row_sum[r]);
#pragma unroll
      for (int step = 16; step >= P::kLanes; step /= 2)
#pragma unroll
        for (int d = 0; d < P::kLaneDims; ++d)
          tile.o[r][d] += __shfl_xor_sync(~0u, tile.o[r][d], step);
    }
#pragma unroll
    for (int first = 0; first < P::kRows; first += P::kCombineRows) {
      if (first >= rows) break;
      if (first > 0) __syncthreads();
      if (place.group == 0)
#pragma unroll
        for (int r = 0; r < P::kCombineRows; ++r)
#pragma unroll
          for (int d = 0; d < P::kLaneDims; d += 4) {
            const float(&o)[P::kLaneDims] = tile.o[first + r];
            const int column = (place.chunk + d / P::kChunk * 32) * P::kChunk + d % P::kChunk;
            *reinterpret_cast<float4*>(rows_shared + (warp * P::kCombineRows + r) * P::kD + column) =
                make_float4(o[d], o[d + 1], o[d + 2], o[d + 3]);
          }
      __syncthreads();
      reduce(work, first, min(P::kCombineRows, rows - first));
    }
  }

 private:
  /// Sums rows [first, first + count) over the warps and writes them out.
  __device__ void reduce(const DecodeWorkTile& work, int first, int count) const {
    constexpr int kColumns = P::kD / 4;
    for (int i = threadIdx.x; i < count * kColumns; i += P::kThreads) {
      const int row = i / kColumns, column = i % kColumns * 4;
      float top = -INFINITY;
#pragma unroll
      for (int w = 0; w < P::kWarps; ++w)
        top = fmaxf(top, states[w * P::kRows + first + row].x);
      const float base = finite_max(top);
      float total = 0;
      float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < P::kWarps; ++w) {
        const float2 state = states[w * P::kRows + first + row];
        const float f = exp2_approx(state.x - base);
        const float4 x =
            *reinterpret_cast<const float4*>(rows_shared + (w * P::kCombineRows + row) * P::kD + column);
        total = fmaf(state.y, f, total);
        o = make_float4(fmaf(x.x, f, o.x), fmaf(x.y, f, o.y), fmaf(x.z, f, o.z), fmaf(x.w, f, o.w));
      }
      if (work.item.num_splits == 1) {
        const float sum = sum_of(work.item, total);
        if (half)
          finish<__half>(params, work.item, work.head, first + row, column, o, top, sum);
        else
          finish<__nv_bfloat16>(params, work.item, work.head, first + row, column, o, top, sum);
      } else {
        const int64_t at =
            partial_row(params, work.item.partial_first + work.item.split, work.head, first + row);
        __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kD + column), o);
        if (column == 0) store_state(params, at, top, total);
      }
    }
  }
};

template <class P>
__global__ __launch_bounds__(P::kThreads, P::kBlocksPerSm) void decode_kernel(
    const __grid_constant__ AttentionParams params, bool half_queries) {
  extern __shared__ __align__(128) char shared[];
  grid_launch_dependents();
  grid_dependency_wait();
  const bool half = P::kKeys == Keys::f16 || (P::kEightBit && half_queries);
  // The first item is prefetched together with the number of items: the grid is no larger than the number of
  // work tiles that can exist.
  asm volatile("prefetch.global.L1 [%0];" ::"l"(params.items +
                                                params.kv_heads.quotient(static_cast<int>(blockIdx.x))));
  const int num_work_tiles = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  const LanePlace<P> place;
  const int warp = threadIdx.x / 32;
  const char* const ring = shared + P::kRingOffset + warp * (params.stages * P::kStageBytes);
  char* const combine_buffer = shared;
  const DecodeEpilogue<P> epilogue{params, half, reinterpret_cast<float*>(combine_buffer),
                                   reinterpret_cast<float2*>(combine_buffer + P::kCombineBytes)};
  const uint32_t ring_address = shared_address(ring);
  DecodeLoader<P> loader(params, num_work_tiles);
#pragma unroll 1
  for (int s = 0; s < params.stages; ++s)
    loader.step(ring_address + s * P::kStageBytes);

  int work_index = static_cast<int>(blockIdx.x);
  if (work_index < num_work_tiles) {
    DecodeWorkTile work = decode_work_tile(params, work_index);
    DecodeQuery<P> query;
    query.load(params, work, place);
    int stage = 0;  // byte offset in the ring
    while (true) {
      float q[P::kRows][P::kLaneDims];
      query.to_floats(q, half);
      work_index += static_cast<int>(gridDim.x);
      const bool more = work_index < num_work_tiles;
      const DecodeWorkTile next = more ? decode_work_tile(params, work_index) : work;
      // The queries of the next work tile arrive during this one.
      if (P::kPrefetchQuery && more) query.load(params, next, place);
      DecodeTile<P> tile;
      RowKeys rows[P::kRows];
#pragma unroll
      for (int r = 0; r < P::kRows; ++r)
        rows[r] =
            row_keys(params, work.item, row_context(params, work.item, work.item.row_first + r, work.head));
      for (int key = work.item.key_first; key < work.item.key_last; key += P::kTileKeys) {
        cp_async_wait<P::kStages - 1>(params.stages - 1);
        tile.step(params, work, q, rows, place, ring + stage + place.lane * 16, key + warp * P::kWarpKeys);
        loader.step(ring_address + stage);  // refills the stage just read
        stage += P::kStageBytes;
        if (stage == params.stages * P::kStageBytes) stage = 0;
      }
      if (!P::kPrefetchQuery && more) query.load(params, next, place);
      epilogue.store(work, tile, place);
      if (!more) break;
      work = next;
    }
  }
  cp_async_wait<0>();
}

}  // namespace fovea::cuda::simt
