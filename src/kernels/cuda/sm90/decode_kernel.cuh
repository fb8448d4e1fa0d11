#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys. A persistent block takes a range of
// the step's items, in order, under one KV head: a warpgroup copies tiles of keys, two work on them, and one
// adds up what they have of each chunk, while they are at the next.
#include "kernels/cuda/sm90/decode_fold.cuh"
#include "kernels/cuda/sm90/decode_loader.cuh"

namespace fovea::cuda::sm90 {

#ifndef FOVEA_LOAD_ONLY
#define FOVEA_LOAD_ONLY 0
#endif

template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// The warps that work on tiles.
template <class P>
__device__ void consume(const AttentionParams& params, const DecodeRange& range, const DecodeRing<P>& ring,
                        const ChunkSums<P>& sums, char* query_tile) {
  const WarpPlace<P> place;
  DecodeTile<P> tile(place);
  DecodeQuery<P> query;
  RingPosition<P::kStages> at;
  for (int index = range.first; index < range.last;) {
    DecodePiece<P> piece(params, range, index);
    query.load(params, piece.item, range.head, place, query_tile);
    tile.rows(params, piece.item, place);
    do {
      const WorkItem& item = piece.item;
      int key = piece.first_key();
      do {
        const int last = min(item.key_last, (key / P::kChunkKeys + 1) * P::kChunkKeys);
        tile.reset();
        for (; key < last; key += P::kTileKeys, at.next()) {
          // Which tiles are a warp's goes by the keys: by nothing that others have part in.
          if (P::kSets > 1 && key / P::kTileKeys % P::kSets != place.set) continue;
          mbarrier_wait(ring.full(at.slot), at.phase);
          if (!FOVEA_LOAD_ONLY)
            tile.step(params, item, query, ring.k(at.slot), ring.v(at.slot), key + place.group * P::kWarpKeys);
          __syncwarp();
          if (place.lane == 0) mbarrier_arrive(ring.empty(at.slot));
        }
        sums.put(tile, place, piece.rows);
      } while (key < item.key_last);
    } while (piece.next(params));
    index = piece.end;
  }
}

/// The warps that add up.
template <class P>
__device__ void sum_up(const AttentionParams& params, const DecodeRange& range, const ChunkSums<P>& sums, char* cells,
                       int* list, char* landing) {
  DecodeFold<P> fold{params, sums, list};
  fold.cells = cells;
  int first_cut = -1, last_cut = -1;
  for (int index = range.first; index < range.last;) {
    DecodePiece<P> piece(params, range, index);
    const WorkItem& item = piece.item;
    const PartWalk walk{range.division, piece.tile_item, piece.first_chunk, item.num_splits, P::kGroupChunks};
    const bool from_start = item.split == 0;
    const bool complete = from_start && piece.end == piece.tile_item + item.num_splits;
    bool loose = !from_start && (piece.first_chunk + item.split) % P::kGroupChunks != 0;
    bool open = false;  // the group's sum is not where it belongs
    fold.begin();
    for (bool more = true; more;) {
      int key = piece.first_key();
      do {
        const int chunk = key / P::kChunkKeys;
        key = min(item.key_last, (chunk + 1) * P::kChunkKeys);
        fold.chunk(item, range.head, piece.rows, loose);
        const bool ends = (chunk + 1) % P::kGroupChunks == 0 ||
                          (key >= item.key_last && item.split + 1 == item.num_splits);
        open = !loose && !ends;
        if (ends && !loose) {
          if (from_start)
            fold.end_group(piece.rows);
          else
            fold.store_group(item, range.head, walk.group_first(item.split), piece.rows);
        }
        loose = loose && !ends;
      } while (key < item.key_last);
      if (piece.index + 1 < piece.end)
        piece.next(params);
      else
        more = false;
    }
    index = piece.end;
    if (complete) {
      fold.finish(item, range.head, piece.rows);
      continue;
    }
    if (open) fold.store_group(item, range.head, walk.group_first(item.split), piece.rows);
    if (from_start && walk.head() > 0) fold.store_row(item, range.head, piece.rows);
    (piece.index == range.last - 1 ? last_cut : first_cut) = piece.index;
  }
  // Only the first row tile and the last may be cut, and others end with theirs when this block does. The ring
  // is free by now.
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int index = i == 0 ? first_cut : last_cut;
    if (index < 0) continue;
    const DecodePiece<P> piece(params, range, index);
    const PartWalk walk{range.division, piece.tile_item, piece.first_chunk, piece.item.num_splits, P::kGroupChunks};
    fold.arrive(piece.item, range.head, piece.rows, walk, landing);
  }
}

template <class P>
__global__ __launch_bounds__(P::kThreads, 1) void decode_kernel(const __grid_constant__ AttentionParams params,
                                                                const __grid_constant__ DecodeGrid grid) {
  extern __shared__ __align__(128) char shared[];
  char* const query_tile = shared + P::kRingBytes;
  char* const merge = query_tile + P::kQueryBytes;
  char* const states = merge + P::kMergeBytes;
  char* const cells = states + P::kStateBytes;
  char* const list = cells + P::kCellBytes;
  const DecodeRing<P> ring{shared_address(shared), shared_address(list + P::kListBytes)};
  const ChunkSums<P> sums{reinterpret_cast<float*>(merge), reinterpret_cast<float2*>(states)};
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < P::kStages; ++i) {
      mbarrier_init(ring.full(i), P::kProducers);
      mbarrier_init(ring.empty(i), P::kSetWarps);
    }
    mbarrier_init_fence();
  }
  if (!grid.settled) grid_dependency_wait();
  const DecodeRange range(params, *params.num_items, grid.gangs);
  __syncthreads();
  if (threadIdx.x < P::kConsumers) {
    take_registers<P::kConsumerRegisters>();
    grid_dependency_wait();
    // Not before: what comes next may then rely on what came before this kernel.
    grid_launch_dependents();
    consume<P>(params, range, ring, sums, query_tile);
  } else if (threadIdx.x < P::kConsumers + P::kSummers) {
    leave_registers<P::kSummerRegisters>();
    grid_dependency_wait();
    sum_up<P>(params, range, sums, cells, reinterpret_cast<int*>(list), shared);
  } else {
    leave_registers<P::kProducerRegisters>();
    DecodeLoader<P>(params, range, ring).run(grid.settled);
  }
}

}  // namespace fovea::cuda::sm90
