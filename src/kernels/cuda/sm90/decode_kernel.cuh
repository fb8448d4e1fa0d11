#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys. A persistent block takes a range
// of the step's items, in order, under one KV head: a warpgroup copies tiles of keys, others work on them and
// add up what they have of each chunk.
#include "kernels/cuda/sm90/decode_combine.cuh"
#include "kernels/cuda/sm90/decode_prefetch.cuh"
#include "kernels/cuda/sm90/decode_loader.cuh"

namespace fovea::cuda::sm90 {

template <int Registers>
__device__ __forceinline__ void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Before what this kernel waits for: brings the counter and, if it holds what it will, this block's first
/// items into L2.
__device__ inline void prefetch_items(const AttentionParams& params, const DecodeGrid& grid) {
  if (threadIdx.x != 0) return;
  const int items = *const_cast<const volatile int32_t*>(params.num_items);
  const DecodeRange range(params, min(max(items, 0), grid.max_items), grid.cta_groups);
  if (range.first < range.last) prefetch_l2(params.items + range.first);
}

/// By the consumers: until the kernels in front of this one have ended. Meanwhile all but the last warp ask
/// for keys, where keys may not be read yet; the last says when, in `ended` (shared).
template <class P>
__device__ void wait_for_grid_dependency(const AttentionParams& params, const DecodeRange& range, const DecodeGrid& grid,
                              volatile int* ended) {
  constexpr int kPrefetchThreads = P::kConsumers - 32;
  const int thread = static_cast<int>(threadIdx.x);
  if (grid.planned && !grid.past_kv_ready) {
    if (thread < kPrefetchThreads) {
      prefetch_keys<P, kPrefetchThreads>(params, range, thread, ended);
    } else {
      grid_dependency_wait();
      if (thread == kPrefetchThreads) *ended = 1;
    }
  }
  grid_dependency_wait();
  // Not before: what comes next may then rely on what came before this kernel.
  grid_launch_dependents();
}

/// The warps that work on tiles.
template <class P>
__device__ void consume(const AttentionParams& params, const DecodeRange& range, const DecodeRing<P>& ring,
                        char* query_tile, DecodeCombine<P>& fold, char* landing) {
  const WarpPlace<P> place;
  DecodeTile<P> tile(place);
  DecodeQuery<P> query;
  RingPosition<P::kStages> at;
  int first_cut = -1, last_cut = -1;
  for (int index = range.first; index < range.last;) {
    DecodeRowTile<P> piece(params, range, index);
    const bool from_start = piece.item.split == 0;
    query.load(params, piece.item, range.head, place, query_tile);
    tile.rows(params, piece.item, place);
    fold.begin();
    bool partial_group = !from_start && (piece.first_chunk + piece.item.split) % P::kGroupChunks != 0;
    bool open = false;  // the group's sum is not where it belongs
    for (;;) {
      const WorkItem& item = piece.item;
      const bool last_split = item.split + 1 == item.num_splits;
      int key = piece.first_key();
      do {
        const int chunk = key / P::kChunkKeys, last = min(item.key_last, (chunk + 1) * P::kChunkKeys);
        tile.reset();
        for (; key < last; key += P::kTileKeys, at.next()) {
          mbarrier_wait(ring.full(at.slot), at.phase);
          tile.step(params, item, query, ring.k(at.slot), ring.v(at.slot), key + place.group * P::kWarpKeys,
                    piece.rows - place.row_tile * 16);
          __syncwarp();
          if (place.lane == 0) mbarrier_arrive(ring.empty(at.slot));
        }
        fold.chunk(item, range.head, piece.rows, tile, place, partial_group);
        const bool ends = (chunk + 1) % P::kGroupChunks == 0 || (key >= item.key_last && last_split);
        open = !partial_group && !ends;
        if (ends && !partial_group) {
          if (from_start)
            fold.end_group(piece.rows);
          else
            fold.store_group(item, range.head, max(0, item.split - chunk % P::kGroupChunks), piece.rows);
        }
        partial_group = partial_group && !ends;
      } while (key < item.key_last);
      if (piece.index + 1 >= piece.end) break;
      piece.next(params);
    }
    index = piece.end;
    const WorkItem& item = piece.item;
    if (from_start && item.split + 1 == item.num_splits) {
      fold.finish(item, range.head, piece.rows);
      continue;
    }
    if (open)
      fold.store_group(item, range.head,
                       max(0, item.split - (piece.first_chunk + item.split) % P::kGroupChunks), piece.rows);
    if (!fold.row_empty) fold.store_row(item, range.head, piece.rows);
    (piece.index == range.last - 1 ? last_cut : first_cut) = piece.index;
  }
  // Only the first row tile and the last may be cut, and others end with theirs when this block does. The
  // ring is free by now.
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int index = i == 0 ? first_cut : last_cut;
    if (index < 0) continue;
    const DecodeRowTile<P> piece(params, range, index);
    const PartialLayout walk{range.division, piece.tile_item, piece.first_chunk, piece.item.num_splits,
                        P::kGroupChunks};
    fold.arrive(piece.item, range.head, piece.rows, walk, landing);
  }
}

template <class P>
__global__ __launch_bounds__(P::kThreads,
                             1) void decode_kernel(const __grid_constant__ AttentionParams params,
                                                   const __grid_constant__ DecodeGrid grid) {
  extern __shared__ __align__(128) char shared[];
  char* const query_tile = shared + P::kRingBytes;
  char* const merge = query_tile + P::kQueryBytes;
  char* const states = merge + P::kCombineBytes;
  char* const list = states + P::kStateBytes;
  const DecodeRing<P> ring{shared_address(shared), shared_address(list + P::kPartialListBytes)};
  volatile int* const ended = reinterpret_cast<int*>(list + P::kPartialListBytes + P::kBarrierBytes);
  if (threadIdx.x == 0) {
    *ended = 0;
    for (uint32_t i = 0; i < P::kStages; ++i) {
      mbarrier_init(ring.full(i), P::kProducers);
      mbarrier_init(ring.empty(i), P::kConsumerWarps);
    }
    mbarrier_init_fence();
  }
  if (!grid.planned) {
    prefetch_items(params, grid);
    grid_dependency_wait();
  }
  const DecodeRange range(params, __ldcg(params.num_items), grid.cta_groups);
  __syncthreads();
  if (threadIdx.x < P::kConsumers) {
    wait_for_grid_dependency<P>(params, range, grid, ended);
    if constexpr (P::kShiftRegisters) registers_increase<P::kConsumerRegisters>();
    DecodeCombine<P> fold{params, reinterpret_cast<float*>(merge), reinterpret_cast<float2*>(states),
                       reinterpret_cast<int*>(list)};
    consume<P>(params, range, ring, query_tile, fold, shared);
  } else {
    if constexpr (P::kShiftRegisters) registers_decrease<P::kProducerRegisters>();
    DecodeLoader<P>(params, range, ring).run(grid);
  }
}

}  // namespace fovea::cuda::sm90
