#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys. The grid is persistent: a CTA has
// a contiguous range of the step's items under one KV head. A producer warpgroup copies tiles of keys and
// values; consumer warpgroups compute on them and combine the results of each chunk.
//
// What waits for what; `-->` points to the side that waits:
//
//   kernels in front --(grid dependency)--> all threads, before all other reads        not planned
//                                       --> consumers; producers before the first key  planned
//                                       --> consumers; producers before a tile that has keys of this
//                                           step                                       past_kv_ready
//   last consumer warp --(`dependency_done`)--> the others, which prefetch keys        planned
//
//   producers --(full[stage])--> consumer warps: keys and values of a tile are in the ring
//   consumer warps --(empty[stage])--> producers: the stage may be overwritten
//   consumer warps --(named barrier)--> each other: DecodeQuery::load, DecodeCombine
//   CTAs of a row tile --(AttentionParams::arrivals)--> the last-arriving CTA, which combines
//
// No CTA waits for another one: the last-arriving CTA finds all partial results in place.
#include "kernels/cuda/sm90/decode_combine.cuh"
#include "kernels/cuda/sm90/decode_loader.cuh"
#include "kernels/cuda/sm90/decode_prefetch.cuh"
#include "kernels/cuda/tiles/wgmma.cuh"

namespace fovea::cuda::sm90 {

/// Called before the grid dependency: reads the item count, which may be stale, and prefetches this CTA's
/// first item to L2 as if the count were right.
__device__ inline void prefetch_items(const AttentionParams& params, const DecodeGrid& grid) {
  if (threadIdx.x != 0) return;
  const int items = *const_cast<const volatile int32_t*>(params.num_items);
  const DecodeRange range(params, min(max(items, 0), grid.max_items), grid.cta_groups);
  if (range.first < range.last) prefetch_l2(params.items + range.first);
}

/// Called by the consumers: waits for the kernels in front of this one. Meanwhile, if keys must not be read
/// yet, all consumer warps except the last prefetch keys; the last one sets `dependency_done` (in shared
/// memory).
template <class P>
__device__ void wait_for_grid_dependency(const AttentionParams& params, const DecodeRange& range,
                                         const DecodeGrid& grid, volatile int* dependency_done) {
  constexpr int kPrefetchThreads = P::kConsumers - 32;
  const int thread = static_cast<int>(threadIdx.x);
  if (grid.planned && !grid.past_kv_ready) {
    if (thread < kPrefetchThreads) {
      prefetch_keys<P, kPrefetchThreads>(params, range, thread, dependency_done);
    } else {
      grid_dependency_wait();
      if (thread == kPrefetchThreads) *dependency_done = 1;
    }
  }
  grid_dependency_wait();
}

/// Whether the consumers of a CTA without items rehearse: they do what others do with one of the step's
/// items, on whatever is in shared memory, and store nothing. It keeps the code in the instruction caches of
/// all multiprocessors. In a step of few items each layer's work may be on others, and fetching the code that
/// follows the last tile takes several times as long as executing it.
__device__ inline bool rehearses_decode(const AttentionParams& params, const DecodeRange& range,
                                        const DecodeGrid& grid) {
  return grid.planned && params.partial_out != nullptr && range.first == range.last &&
         range.division.items > 0;
}

/// The consumer warps process the row tiles of the range in order. States of a row tile:
///
///              begin_row
///               |     |
///               |     +-- another CTA has the first split of the group
///               v                       v
///   +------> SUM GROUP <--group ends-- PARTIAL GROUP
///   |         |     |                   |
///   |    group ends |                   |
///   |         |     +----range ends-----+
///   |         v                         v
///   +-- add_group (from_start)         SHARED
///       or store_group (otherwise)
///
/// SUM GROUP: add_chunk adds each chunk to the group.
/// PARTIAL GROUP: add_chunk stores each split as a partial result of its own.
/// SHARED: store_group if a group is open, store_row if whole groups were added to the row;
/// arrive_and_combine after the last row tile of the range. After the last split of the row tile:
/// store_output if the CTA has all splits, otherwise SHARED.
template <class P>
__device__ void consume(const AttentionParams& params, const DecodeRange& range, const DecodeRing<P>& ring,
                        char* query_tile, DecodeCombine<P>& combine, char* landing) {
  const WarpPlace<P> place;
  DecodeTile<P> tile(place);
  DecodeQuery<P> query;
  RingPosition<P::kStages> at;
  for (int index = range.first; index < range.last;) {
    DecodeRowTile<P> row_tile(params, index);
    const bool from_start = row_tile.item.split == 0;
    query.load(params, row_tile.item, range.head, row_tile.rows, place, query_tile);
    tile.rows(params, row_tile.item, place);
    combine.begin_row();
    bool partial_group = !from_start && (row_tile.first_chunk() + row_tile.item.split) % P::kGroupChunks != 0;
    bool group_open = false;  // the sum of the group is neither added to the row nor stored
    for (;;) {
      const WorkItem& item = row_tile.item;
      const bool last_split = item.split + 1 == item.num_splits;
      int key = row_tile.first_key();
      do {
        const int chunk = key / P::kChunkKeys, last = min(item.key_last, (chunk + 1) * P::kChunkKeys);
        const bool some = key < last;
        tile.reset();
        for (; key < last; key += P::kTileKeys, at.next()) {
          if (!combine.rehearses) mbarrier_wait(ring.full(at.slot), at.phase);
          tile.step(params, item, query, ring.k(at.slot), ring.v(at.slot), key + place.group * P::kWarpKeys,
                    row_tile.rows);
          if (key + P::kTileKeys >= last) continue;  // the warps exchange results in the last tile's memory
          __syncwarp();
          if (place.lane == 0) mbarrier_arrive(ring.empty(at.slot));
        }
        const uint32_t slot = (at.slot == 0 ? P::kStages : at.slot) - 1;  // of the last tile
        combine.add_chunk(item, range.head, row_tile.rows, tile, place, partial_group,
                          reinterpret_cast<float*>(landing + slot * P::kStageBytes), some);
        if (some) {
          __syncwarp();
          if (place.lane == 0) mbarrier_arrive(ring.empty(slot));
        }
        const bool ends = (chunk + 1) % P::kGroupChunks == 0 || (key >= item.key_last && last_split);
        group_open = !partial_group && !ends;
        if (ends && !partial_group) {
          if (from_start)
            combine.add_group(row_tile.rows);
          else
            combine.store_group(item, range.head, max(0, item.split - chunk % P::kGroupChunks),
                                row_tile.rows);
        }
        partial_group = partial_group && !ends;
      } while (key < item.key_last && !combine.rehearses);
      if (row_tile.index + 1 >= row_tile.end(range)) break;
      row_tile.next(params);
    }
    index = row_tile.end(range);
    const WorkItem& item = row_tile.item;
    if (from_start && item.split + 1 == item.num_splits) {
      combine.store_output(item, range.head, row_tile.rows);
      continue;
    }
    if (group_open)
      combine.store_group(item, range.head,
                          max(0, item.split - (row_tile.first_chunk() + item.split) % P::kGroupChunks),
                          row_tile.rows);
    if (!combine.row_empty) combine.store_row(item, range.head, row_tile.rows);
  }
  // Only the first and the last row tile of a range can be shared with other CTAs. Combining comes last: the
  // ring is free by now, and the other CTAs that have splits of these row tiles finish at about this time.
#pragma unroll 1
  for (int i = 0; i < 2 && range.first < range.last; ++i) {
    const DecodeRowTile<P> row_tile(params, i == 0 ? range.first : range.last - 1);
    const bool last = row_tile.end(range) == range.last;
    if (i == 0 && last) continue;  // it comes as the last one
    if (row_tile.tile_item() >= range.first &&
        row_tile.tile_item() + row_tile.item.num_splits == row_tile.end(range))
      continue;  // not shared
    const PartialLayout layout{range.division, row_tile.tile_item(), row_tile.first_chunk(),
                               row_tile.item.num_splits, P::kGroupChunks};
    combine.arrive_and_combine(row_tile.item, range.head, row_tile.rows, layout, landing);
  }
}

template <class P>
__global__ __launch_bounds__(P::kThreads,
                             1) void decode_kernel(const __grid_constant__ AttentionParams params,
                                                   const __grid_constant__ DecodeGrid grid) {
  extern __shared__ __align__(128) char shared[];
  char* const query_tile = shared + P::kRingBytes;
  char* const states = query_tile + P::kQueryBytes;
  char* const sums = states + P::kStateBytes;
  char* const list = sums + P::kRowSumBytes;
  const DecodeRing<P> ring{shared_address(shared), shared_address(list + P::kPartialListBytes)};
  volatile int* const dependency_done =
      reinterpret_cast<int*>(list + P::kPartialListBytes + P::kBarrierBytes);
  if (threadIdx.x == 0) {
    *dependency_done = 0;
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
  DecodeRange range(params, __ldcg(params.num_items), grid.cta_groups);
  __syncthreads();
  if (threadIdx.x < P::kConsumers) {
    const bool rehearses = rehearses_decode(params, range, grid);
    if (!rehearses) wait_for_grid_dependency<P>(params, range, grid, dependency_done);
    if constexpr (P::kShiftRegisters) registers_increase<P::kConsumerRegisters>();
    DecodeCombine<P> combine{params, reinterpret_cast<float2*>(states), reinterpret_cast<float4*>(sums),
                             reinterpret_cast<int*>(list), rehearses};
    if (rehearses) {  // the first or the last item, whose results go different ways
      range.first = blockIdx.x % 2 == 0 ? 0 : static_cast<int>(range.division.items) - 1;
      range.last = range.first + 1;
    }
    consume<P>(params, range, ring, query_tile, combine, shared);
    if (rehearses) grid_dependency_wait();
  } else {
    if constexpr (P::kShiftRegisters) registers_decrease<P::kProducerRegisters>();
    DecodeLoader<P>(params, range, ring).run(grid);
  }
}

}  // namespace fovea::cuda::sm90
