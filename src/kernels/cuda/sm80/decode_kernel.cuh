#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys, split at absolute multiples of
// P::kSplitKeys. A persistent block takes unit after unit (an item under one KV head), its loads running
// ahead into the next.
#include "kernels/cuda/sm80/decode_epilogue.cuh"
#include "kernels/cuda/sm80/decode_mainloop.cuh"
#include "kernels/cuda/sm80/decode_tile.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm80 {

template <class P>
__global__ __launch_bounds__(P::kThreads, P::kBlocksPerSm) void decode_kernel(
    const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32;
  grid_launch_dependents();
  grid_dependency_wait();
  const int num_units = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  const uint32_t ring = shared_address(shared) + warp * (P::kStages * P::kStageBytes);
  char* const query_tile = shared + P::kRingBytes;
  char* const merge = query_tile + P::kQueryBytes;
  DecodeEpilogue<P> epilogue{params, reinterpret_cast<float*>(merge),
                             reinterpret_cast<float2*>(merge + P::kMergeBytes)};
  DecodeLoader<P> loader(params, ring, num_units);
#pragma unroll
  for (int s = 0; s < P::kStages; ++s)
    loader.step();

  int unit = static_cast<int>(blockIdx.x);
  if (unit < num_units) {
    DecodeUnit work = decode_unit(params, unit);
    DecodeQuery<P> query, next_query;
    query.load(params, work, query_tile);
    query.finish();
    int stage = 0;
    while (true) {
      unit += static_cast<int>(gridDim.x);
      const bool more = unit < num_units;
      const DecodeUnit next = more ? decode_unit(params, unit) : work;
      DecodeTile<P> tile(params, work);
      for (int key = work.item.key_first; key < work.item.key_last; key += P::kTileKeys) {
        cp_async_wait<P::kStages - 1>();
        __syncwarp();
        tile.step(params, work, query, ring + stage * P::kStageBytes, key);
        __syncwarp();
        loader.step();  // into the stage just read: all stages are under way while a unit ends
        stage = stage + 1 == P::kStages ? 0 : stage + 1;
        // The next unit's queries arrive during this one.
        if (P::kQueryAhead && key == work.item.key_first && more) next_query.load(params, next, query_tile);
      }
      if (!P::kQueryAhead && more) query.load(params, next, query_tile);
      epilogue.unit(work.item, work.head, tile.o, tile.maximum, tile.sum);
      if (!more) break;
      if constexpr (P::kQueryAhead) {
        if (work.item.key_first < work.item.key_last)
          query = next_query;
        else
          query.load(params, next, query_tile);
      }
      query.finish();
      work = next;
    }
  }
  cp_async_wait<0>();
}

}  // namespace fovea::cuda::sm80
