#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys. A persistent block takes a range of
// the step's items, in order, under one KV head: producer warps fill a ring of tiles, the others work on them.
#include "kernels/cuda/sm90/decode_fold.cuh"
#include "kernels/cuda/sm90/decode_loader.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm90 {

#ifndef FOVEA_LOAD_ONLY
#define FOVEA_LOAD_ONLY 0
#endif

template <class P>
__device__ void consume(const AttentionParams& params, const DecodeRange& range, const DecodeRing<P>& ring, int box,
                        char* query_tile, DecodeFold<P>& fold) {
  const WarpPlace<P> place;
  DecodeTile<P> tile(place, box);
  DecodeQuery<P> query;
  RingPosition<P::kStages> at;
  int index = range.first;
  while (index < range.last) {
    WorkItem item = params.items[index];
    const int tile_item = index - item.split;  // of split 0
    const int end = min(range.last, tile_item + item.num_splits);
    const bool from_start = item.split == 0, complete = from_start && end == tile_item + item.num_splits;
    const int first_chunk = item.key_first / P::kChunkKeys - item.split;  // of split 0
    const int rows = min(P::kRows, item.n_q * static_cast<int>(params.group.divisor) - item.row_first);
    query.load(params, item, range.head, place, query_tile);
    tile.rows(params, item, place);
    fold.begin();
    bool loose = !from_start && (first_chunk + item.split) % P::kGroupChunks != 0;
    bool open = false;  // the group has chunks
    for (;;) {
      int key = first_tile<P>(item);
      do {
        const int chunk = key / P::kChunkKeys, chunk_last = min(item.key_last, (chunk + 1) * P::kChunkKeys);
        tile.reset();
        for (; key < chunk_last; key += P::kTileKeys, at.next()) {
          mbarrier_wait(ring.full(at.slot), at.phase);
          if (!FOVEA_LOAD_ONLY)
            tile.step(params, item, query, place, ring.k(at.slot), ring.v(at.slot), box,
                      key + place.group * P::kWarpKeys);
          __syncwarp();
          if (place.lane == 0) mbarrier_arrive(ring.empty(at.slot));
        }
        fold.chunk(item, range.head, rows, tile, place, loose);
        const bool group_ends = (chunk + 1) % P::kGroupChunks == 0 ||
                                (key >= item.key_last && item.split + 1 == item.num_splits);
        open = !loose && !group_ends;
        if (group_ends) {
          if (loose)
            loose = false;
          else if (from_start)
            fold.end_group(rows);
          else
            fold.store_group(item, range.head, item.split - chunk % P::kGroupChunks, rows);
        }
      } while (key < item.key_last);
      if (++index >= end) break;
      item = params.items[index];
    }
    if (complete) {
      fold.finish(item, range.head, rows);
      continue;
    }
    const PartWalk walk{range.division, tile_item, first_chunk, item.num_splits, P::kGroupChunks};
    if (open) fold.store_group(item, range.head, max(0, item.split - (first_chunk + item.split) % P::kGroupChunks), rows);
    if (from_start && walk.head() > 0) fold.store_row(item, range.head, rows);
    fold.arrive(item, range.head, rows, walk,
                range.division.gang_of(tile_item + item.num_splits - 1) - range.division.gang_of(tile_item) + 1);
  }
}

template <class P>
__global__ __launch_bounds__(P::kThreads, 1) void decode_kernel(const __grid_constant__ AttentionParams params,
                                                                const __grid_constant__ DecodeMaps maps) {
  extern __shared__ char raw[];
  char* const shared = raw + (1024 - (shared_address(raw) & 1023)) % 1024;
  char* const query_tile = shared + P::kRingBytes;
  char* const merge = query_tile + P::kQueryBytes;
  char* const states = merge + P::kMergeBytes;
  char* const barriers = states + P::kStateBytes;
  const DecodeRing<P> ring{shared_address(shared), shared_address(barriers)};
  const bool boxes = maps.box_keys > 0;
  grid_launch_dependents();
  if (threadIdx.x == 0) {
    for (int i = 0; i < P::kStages; ++i) {
      mbarrier_init(ring.full(i), boxes ? 1 : 32 * P::kProducerWarps);
      mbarrier_init(ring.empty(i), P::kConsumerWarps);
    }
    mbarrier_init_fence();
    if (boxes) tma_prefetch(&maps.k), tma_prefetch(&maps.v);
  }
  __syncthreads();
  grid_dependency_wait();
  const DecodeRange range(params, *params.num_items, maps.gangs);
  if (range.first >= range.last) return;
  if (threadIdx.x >= P::kConsumers) {
    if (!boxes)
      produce_rows<P>(params, range, ring);
    else if (threadIdx.x < P::kConsumers + 32)
      produce_boxes<P>(params, maps, range, ring);
    return;
  }
  DecodeFold<P> fold{params, reinterpret_cast<float*>(merge), reinterpret_cast<float2*>(states),
                     reinterpret_cast<int*>(barriers + P::kStages * 16)};
  consume<P>(params, range, ring, boxes ? maps.box_keys : P::kTileKeys, query_tile, fold);
}

}  // namespace fovea::cuda::sm90
