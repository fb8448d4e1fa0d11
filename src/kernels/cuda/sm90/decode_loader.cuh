#pragma once
// The producers of the decode kernel: tiles of keys and values into the ring, in the order of the consumers,
// over items and tiles alike.
#include <cuda.h>

#include "kernels/cuda/sm90/decode_policy.h"
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/tma.cuh"

namespace fovea::cuda::sm90 {

/// How keys come into shared memory.
struct DecodeMaps {
  /// {a panel of a row, slots, panels, heads, pages}, boxes of box_keys slots.
  CUtensorMap k, v;
  int box_keys;  ///< divides the page size and the tile; 0 = rows are copied one by one
  int gangs;
};

/// Addresses of the ring and its barriers.
template <class P>
struct DecodeRing {
  uint32_t tiles, barriers;
  __device__ uint32_t k(uint32_t slot) const { return tiles + slot * P::kStageBytes; }
  __device__ uint32_t v(uint32_t slot) const { return k(slot) + P::KTile::kBytes; }
  __device__ uint32_t full(uint32_t slot) const { return barriers + slot * 16; }
  __device__ uint32_t empty(uint32_t slot) const { return barriers + slot * 16 + 8; }
};

__device__ __forceinline__ void page_of(const KvParams& kv, const WorkItem& item, int key, int& page, int& slot) {
  if (kv.pages == nullptr) {
    slot = 0;
    page = static_cast<int>(item.pages) + key;
  } else {
    const int index = kv.page_size.quotient(key);
    slot = key - index * static_cast<int>(kv.page_size.divisor);
    page = __ldg(kv.pages + item.pages + index);
  }
}

/// Whole boxes, by one warp: a lane knows the page of one of the next 32 boxes.
template <class P>
__device__ void produce_boxes(const AttentionParams& p, const DecodeMaps& maps, const DecodeRange& range,
                              const DecodeRing<P>& ring) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int box = maps.box_keys, boxes = P::kTileKeys / box;
  constexpr uint32_t kKeyBytes = (P::kD + P::kDv) * kv_bytes(P::kKv);
  int index = range.first, key = 0, page = 0, slot = 0;
  WorkItem item{};
  bool more = false, wanted = false;
  // Asks for the pages of the 32 boxes from `key` on.
  const auto ask = [&] {
    const int mine = key + lane * box;
    wanted = mine < item.key_last && mine + box > item.key_low;
    if (wanted) page_of(p.kv, item, mine, page, slot);
  };
  const auto next_item = [&] {
    more = false;
    while (!more && index < range.last) {
      item = p.items[index++];
      if (index < range.last) prefetch_l1(p.items + index);
      key = first_tile<P>(item);
      more = key < item.key_last;
    }
    if (more) ask();
  };
  next_item();
  RingPosition<P::kStages> at;
  while (more) {
    const int now = key, last = min(item.key_last, now + 32 * box);
    const int now_page = page, now_slot = slot;
    const unsigned now_wanted = __ballot_sync(~0u, wanted);
    key = last;
    if (key < item.key_last)
      ask();
    else
      next_item();
    int first = 0;
    for (int tile = now; tile < last; tile += P::kTileKeys, first += boxes, at.next()) {
      mbarrier_wait(ring.empty(at.slot), at.phase ^ 1);
      const uint32_t some = now_wanted >> first & (boxes == 32 ? ~0u : (1u << boxes) - 1);
      if (lane == 0)
        mbarrier_arrive_expect_tx(ring.full(at.slot), static_cast<uint32_t>(__popc(some) * box) * kKeyBytes);
      __syncwarp();
#pragma unroll 1
      for (int turn = 0; turn < 2 * boxes; turn += 32) {
        const int b = turn + lane, which = b % boxes;
        const int from = __shfl_sync(~0u, now_page, first + which);
        const int from_slot = __shfl_sync(~0u, now_slot, first + which);
        if (b >= 2 * boxes || (some >> which & 1) == 0) continue;
        const bool value = b >= boxes;
        const uint32_t to = value ? ring.v(at.slot) + which * box * (P::kDv * kv_bytes(P::kKv))
                                  : ring.k(at.slot) + which * box * (P::kD * kv_bytes(P::kKv));
        if constexpr (P::KTile::kRowMajor)
          tma_load_5d(to, value ? &maps.v : &maps.k, ring.full(at.slot), 0, 0, from_slot, range.head, from,
                      CacheHint::evict_first);
        else
          tma_load_5d(to, value ? &maps.v : &maps.k, ring.full(at.slot), 0, from_slot, 0, range.head, from,
                      CacheHint::evict_first);
      }
    }
  }
}

/// Rows one by one, by all of the producer's warps, each with its share of a tile.
template <class P>
__device__ void produce_rows(const AttentionParams& p, const DecodeRange& range, const DecodeRing<P>& ring) {
  constexpr int kRows = P::kTileKeys / P::kProducerWarps;  // of a tile, of a warp
  constexpr int kTiles = 32 / kRows;                       // that lanes know the pages of
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = (static_cast<int>(threadIdx.x) - P::kConsumers) / 32;
  const char* const k_base = p.kv.k + range.head * p.kv.k_head_stride;
  const char* const v_base = p.kv.v + range.head * p.kv.v_head_stride;
  int index = range.first, key = 0, page = 0, slot = 0;
  WorkItem item{};
  bool more = false, wanted = false;
  const auto ask = [&] {
    const int mine = key + lane / kRows * P::kTileKeys + warp * kRows + lane % kRows;
    wanted = mine < item.key_last && mine >= item.key_low;
    if (wanted) page_of(p.kv, item, mine, page, slot);
  };
  const auto next_item = [&] {
    more = false;
    while (!more && index < range.last) {
      item = p.items[index++];
      if (index < range.last) prefetch_l1(p.items + index);
      key = first_tile<P>(item);
      more = key < item.key_last;
    }
    if (more) ask();
  };
  next_item();
  RingPosition<P::kStages> at;
  while (more) {
    const int now = key, last = min(item.key_last, now + kTiles * P::kTileKeys);
    const int64_t k_offset = page * p.kv.k_page_stride + slot * p.kv.k_slot_stride;
    const int64_t v_offset = page * p.kv.v_page_stride + slot * p.kv.v_slot_stride;
    const unsigned rows = __ballot_sync(~0u, wanted);
    key = last;
    if (key < item.key_last)
      ask();
    else
      next_item();
    for (int tile = now, first = 0; tile < last; tile += P::kTileKeys, first += kRows, at.next()) {
      mbarrier_wait(ring.empty(at.slot), at.phase ^ 1);
      const auto copy = [&]<class Tile>(Tile, uint32_t to, const char* base, int64_t offset) {
        constexpr int kTotal = kRows * Tile::kChunks;
#pragma unroll
        for (int i = 0; i < (kTotal + 31) / 32; ++i) {
          const int n = i * 32 + lane, row = n / Tile::kChunks, chunk = n % Tile::kChunks;
          const int64_t from = __shfl_sync(~0u, offset, first + row);
          const bool valid = rows >> (first + row) & 1;
          if (kTotal % 32 == 0 || n < kTotal)
            cp_async_16(to + Tile::offset(warp * kRows + row, chunk, P::kTileKeys), valid ? base + from + chunk * 16 : base,
                        valid);
        }
      };
      copy(typename P::KTile{}, ring.k(at.slot), k_base, k_offset);
      copy(typename P::VTile{}, ring.v(at.slot), v_base, v_offset);
      cp_async_mbarrier_arrive(ring.full(at.slot));
    }
  }
  cp_async_wait_all();
}

}  // namespace fovea::cuda::sm90
