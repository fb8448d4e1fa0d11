#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys, split at absolute multiples of
// P::kSplitKeys. Persistent CTAs take work tiles (a WorkItem under one KV head) one after another; their
// loads are prefetched across work tiles.
#include "kernels/cuda/sm80/decode_epilogue.cuh"
#include "kernels/cuda/sm80/decode_loader.cuh"
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
  __shared__ int slots[WorkQueue::kSlots];
  if (threadIdx.x < WorkQueue::kSlots) slots[threadIdx.x] = WorkQueue::kFree;
  __syncthreads();
  const int num_work_tiles = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  const uint32_t ring = shared_address(shared) + P::kRingOffset + warp * (params.stages * P::kStageBytes);
  char* const query_tile = shared;
  char* const combine_buffer = query_tile + P::kQueryBytes;
  DecodeEpilogue<P> epilogue{params, reinterpret_cast<float*>(combine_buffer),
                             reinterpret_cast<float2*>(combine_buffer + P::kCombineBytes)};
  const WorkQueue queue{params, P::kDynamicScheduler ? params.queue : nullptr, slots, num_work_tiles};
  DecodeLoader<P> loader(params, queue);
#pragma unroll
  for (int s = 0; s < P::kStages; ++s)
    if (s < params.stages) loader.step(ring + s * P::kStageBytes);

  if (queue.at(0) < num_work_tiles) {
    DecodeWorkTile work = decode_work_tile(params, queue.at(0));
    DecodeQuery<P> query, next_query;
    query.load(params, work, query_tile);
    query.finish();
    int stage = 0;  // byte offset in the ring
    for (int ordinal = 0;; ++ordinal) {
      const int work_index = queue.at(ordinal + 1);
      const bool more = work_index < num_work_tiles;
      const DecodeWorkTile next = more ? decode_work_tile(params, work_index) : work;
      DecodeTile<P> tile(params, work);
      // Set here, where n_k is in a register: registers are scarce.
      tile.row_sum[0] = tile.row_sum[1] = sum_of(work.item, 0.0f);
      int key = work.item.key_first;
      do {  // an item without keys has one empty tile, which the loader relies on
        cp_async_wait<P::kStages - 1>(params.stages - 1);
        __syncwarp();
        tile.step(params, work, query, ring + stage, key);
        __syncwarp();
        // Refills the stage just read: all stages are in flight during the epilogue.
        loader.step(ring + stage);
        stage += P::kStageBytes;
        if (stage == params.stages * P::kStageBytes) stage = 0;
        // The queries of the next work tile arrive during this one.
        if (P::kPrefetchQuery && key == work.item.key_first && more)
          next_query.load(params, next, query_tile);
        key += P::kTileKeys;
      } while (key < work.item.key_last);
      if (!P::kPrefetchQuery && more) query.load(params, next, query_tile);
      epilogue.store(work.item, work.head, tile.o, tile.row_max, tile.row_sum);
      if (!more) break;
      queue.release(ordinal);
      if constexpr (P::kPrefetchQuery) query = next_query;
      query.finish();
      work = next;
    }
  }
  cp_async_wait<0>();
}

}  // namespace fovea::cuda::sm80
