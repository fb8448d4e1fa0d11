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
  __shared__ int slots[UnitQueue::kSlots];
  if (threadIdx.x < UnitQueue::kSlots) slots[threadIdx.x] = UnitQueue::kFree;
  __syncthreads();
  const int num_units = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  const uint32_t ring = shared_address(shared) + P::kRingOffset + warp * (params.stages * P::kStageBytes);
  char* const query_tile = shared;
  char* const merge = query_tile + P::kQueryBytes;
  DecodeEpilogue<P> epilogue{params, reinterpret_cast<float*>(merge),
                             reinterpret_cast<float2*>(merge + P::kMergeBytes)};
  const UnitQueue queue{params, P::kShareOut ? params.queue : nullptr, slots, num_units};
  DecodeLoader<P> loader(params, queue);
#pragma unroll
  for (int s = 0; s < P::kStages; ++s)
    if (s < params.stages) loader.step(ring + s * P::kStageBytes);

  if (queue.at(0) < num_units) {
    DecodeUnit work = decode_unit(params, queue.at(0));
    DecodeQuery<P> query, next_query;
    query.load(params, work, query_tile);
    query.finish();
    int stage = 0;  ///< its bytes in the ring
    for (int place = 0;; ++place) {
      const int unit = queue.at(place + 1);
      const bool more = unit < num_units;
      const DecodeUnit next = more ? decode_unit(params, unit) : work;
      DecodeTile<P> tile(params, work);
      tile.sum[0] = tile.sum[1] = sum_of(work.item, 0.0f);  // here, where n_k is at hand: registers are few
      int key = work.item.key_first;
      do {  // one tile of nothing for an item without keys: the loads count on it
        cp_async_wait<P::kStages - 1>(params.stages - 1);
        __syncwarp();
        tile.step(params, work, query, ring + stage, key);
        __syncwarp();
        loader.step(ring + stage);  // the stage just read: all stages are in flight while a unit ends
        stage += P::kStageBytes;
        if (stage == params.stages * P::kStageBytes) stage = 0;
        // The next unit's queries arrive during this one.
        if (P::kQueryAhead && key == work.item.key_first && more) next_query.load(params, next, query_tile);
        key += P::kTileKeys;
      } while (key < work.item.key_last);
      if (!P::kQueryAhead && more) query.load(params, next, query_tile);
      epilogue.unit(work.item, work.head, tile.o, tile.maximum, tile.sum);
      if (!more) break;
      queue.release(place);
      if constexpr (P::kQueryAhead) query = next_query;
      query.finish();
      work = next;
    }
  }
  cp_async_wait<0>();
}

}  // namespace fovea::cuda::sm80
