#pragma once
// The producer warpgroup of the decode kernel. It copies tiles of keys and values into the ring, in the order
// of the consumers and without a break between items.
#include "kernels/cuda/sm90/decode_policy.h"
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm90 {

/// Addresses of the ring and its barriers.
template <class P>
struct DecodeRing {
  uint32_t tiles, barriers;
  __device__ uint32_t k(uint32_t slot) const { return tiles + slot * P::kStageBytes; }
  __device__ uint32_t v(uint32_t slot) const { return k(slot) + P::kKBytes; }
  __device__ uint32_t full(uint32_t slot) const { return barriers + slot * 16; }
  __device__ uint32_t empty(uint32_t slot) const { return barriers + slot * 16 + 8; }
};

/// Each producer warp copies kCopyRows rows of every tile. Its lanes hold the locations of the rows of the
/// next 32 / kCopyRows tiles, and load the locations of the tiles after those while these are copied.
template <class P>
struct DecodeLoader {
  static constexpr int kTiles = 32 / P::kCopyRows;
  static constexpr int kUnroll = P::kShiftRegisters ? 4 : 8;
  const AttentionParams& params;
  const DecodeRange& range;
  const DecodeRing<P>& ring;
  const int lane, warp;
  const bool strided;        ///< a warp's rows of a tile have one stride: they lie in one page or are ragged
  const bool same_strides;   ///< K and V have the same strides
  const int64_t run_stride;  ///< of x-packed values
  const int runs_together;   ///< adjacent in memory
  const uint64_t cache_policy = evict_first_policy();
  int index, key = 0, page = 0, slot = 0;
  int key_last = 0, key_low = 0, past_keys = 0;  ///< of the item
  int64_t pages = 0;
  bool more = false, valid = false;
  bool run_valid = false;  ///< x-packed: a key of the row's run is read, so that its page id is valid

  __device__ DecodeLoader(const AttentionParams& p, const DecodeRange& r, const DecodeRing<P>& to)
      : params(p),
        range(r),
        ring(to),
        lane(static_cast<int>(threadIdx.x) % 32),
        warp(static_cast<int>(threadIdx.x) % P::kProducers / 32),
        strided(p.kv.pages == nullptr || p.kv.page_size.divisor % P::kCopyRows == 0),
        same_strides(p.kv.k_page_stride == p.kv.v_page_stride && p.kv.k_slot_stride == p.kv.v_slot_stride &&
                     P::kD == P::kDv),
        run_stride(p.kv.v_chunk_stride != 0 ? p.kv.v_chunk_stride : 16),
        runs_together(p.kv.v_chunk_stride != 0           ? 1
                      : p.kv.page_size.divisor % 32 == 0 ? 4
                      : p.kv.page_size.divisor % 16 == 0 ? 2
                                                         : 1),
        index(r.first) {
    next_item();
  }

  /// With `grid.past_kv_ready`, keys of earlier steps are read before the kernels in front of this one have
  /// ended; otherwise all keys are read after that.
  __device__ void run(const DecodeGrid& grid) {
    bool waited = !grid.past_kv_ready;
    if (grid.planned && waited) grid_dependency_wait();
    RingPosition<P::kStages> at;
    while (more) {
      const int now = key, last = min(key_last, now + kTiles * P::kTileKeys), past = past_keys;
      const int64_t k_offset =
          planted_offset(page * params.kv.k_page_stride + slot * params.kv.k_slot_stride);
      const int64_t v_offset =
          planted_offset(page * params.kv.v_page_stride +
                         (P::kPacked ? slot / P::kRunKeys * run_stride : slot * params.kv.v_slot_stride));
      const unsigned rows = __ballot_sync(~0u, valid);
      const unsigned runs = P::kPacked ? __ballot_sync(~0u, run_valid) : 0u;
      key = last;
      if (key < key_last)
        locate_rows();
      else
        next_item();
#pragma unroll 1
      for (int tile = now, first = 0; tile < last; tile += P::kTileKeys, first += P::kCopyRows, at.next()) {
        const bool wait = !waited && tile + P::kTileKeys > past;
        mbarrier_wait(ring.empty(at.slot), at.phase ^ 1);
        if (wait) {
          grid_dependency_wait();
          waited = true;
        }
        const unsigned mine = P::kCopyRows == 32 ? rows : rows >> first & ((1u << P::kCopyRows % 32) - 1);
        const char* const k = params.kv.k + range.head * params.kv.k_head_stride;
        const char* const v = params.kv.v + range.head * params.kv.v_head_stride;
        const bool all = __popc(mine) == P::kCopyRows;
        if constexpr (P::kPacked) {
          copy_packed_keys(ring.k(at.slot), k, k_offset, first, mine);
          if (runs_together == 4)
            copy_packed_values<4>(ring.v(at.slot), v, v_offset, first, runs);
          else if (runs_together == 2)
            copy_packed_values<2>(ring.v(at.slot), v, v_offset, first, runs);
          else
            copy_packed_values<1>(ring.v(at.slot), v, v_offset, first, runs);
        } else if (strided && all) {
          const bool ragged = params.kv.pages == nullptr;
          copy_strided<typename P::KTile>(ring.k(at.slot), k + __shfl_sync(~0u, k_offset, first),
                                          ragged ? params.kv.k_page_stride : params.kv.k_slot_stride);
          copy_strided<typename P::VTile>(ring.v(at.slot), v + __shfl_sync(~0u, v_offset, first),
                                          ragged ? params.kv.v_page_stride : params.kv.v_slot_stride);
        } else if (same_strides && all) {
          copy_kv(ring.k(at.slot), k, v, k_offset, first);
        } else {
          copy<typename P::KTile>(ring.k(at.slot), k, k_offset, first, mine);
          copy<typename P::VTile>(ring.v(at.slot), v, v_offset, first, mine);
        }
        cp_async_mbarrier_arrive(ring.full(at.slot));
      }
    }
    if (!waited) grid_dependency_wait();
    // Not before the wait, so that the next kernel can rely on what the kernels in front of this one wrote;
    // and after the last copy, since the next kernel begins to read its weights at once.
    grid_launch_dependents();
    cp_async_wait_all();
  }

 private:
  __device__ void next_item() {
    more = false;
    while (!more && index < range.last) {
      const WorkItem& item = params.items[index++];
      key_last = item.key_last, key_low = item.key_low, past_keys = item.n_k - item.n_q, pages = item.pages;
      if (index < range.last) prefetch_l1(params.items + index);
      key = DecodeRowTile<P>::first_key(item);
      more = key < key_last;
    }
    if (more) locate_rows();
  }

  /// Determines page and slot of the row that this lane holds.
  __device__ void locate_rows() {
    const int mine = key + lane / P::kCopyRows * P::kTileKeys + warp * P::kCopyRows + lane % P::kCopyRows;
    valid = mine < key_last && mine >= key_low;
    const int run = mine / P::kRunKeys * P::kRunKeys;
    run_valid = P::kPacked ? run < key_last && run + P::kRunKeys > key_low : valid;
    if (!run_valid) return;
    if (params.kv.pages == nullptr) {
      slot = 0;
      page = static_cast<int>(pages) + mine;
    } else {
      const int i = params.kv.page_size.quotient(mine);
      slot = mine - i * static_cast<int>(params.kv.page_size.divisor);
      page = __ldg(params.kv.pages + pages + i);
    }
  }

  /// Copies those of this warp's rows that are in the bit mask `rows`; the others become 0.
  template <class Tile>
  __device__ void copy(uint32_t to, const char* base, int64_t offset, int first, unsigned rows) const {
#pragma unroll 1
    for (int i = 0; i < P::kCopyRows * Tile::kChunks / 32; ++i) {
      const int n = i * 32 + lane, row = n / Tile::kChunks, chunk = n % Tile::kChunks;
      const int64_t from = __shfl_sync(~0u, offset, first + row);
      const bool valid = rows >> row & 1;
      copy_16(to + chunk_offset<Tile>(row, chunk), valid ? base + from + chunk * 16 : base, valid);
    }
  }

  /// Copies this warp's rows of x-packed keys: adjacent lanes take adjacent keys.
  __device__ void copy_packed_keys(uint32_t to, const char* base, int64_t offset, int first,
                                   unsigned rows) const {
    using Tile = typename P::KTile;
    const int row = lane % P::kCopyRows;
    const bool valid = rows >> row & 1;
    const int64_t step = valid ? 32 / P::kCopyRows * params.kv.k_chunk_stride : 0;
    const char* from = base;
    const int64_t mine =
        __shfl_sync(~0u, offset, first + row) + lane / P::kCopyRows * params.kv.k_chunk_stride;
    if (valid) from += mine;
#pragma unroll kUnroll
    for (int i = 0; i < Tile::kChunks; i += 32 / P::kCopyRows, from += step)
      copy_16(to + chunk_offset<Tile>(row, i + lane / P::kCopyRows), from, valid);
  }

  /// Copies this warp's runs of x-packed values, `Together` of which are adjacent in memory: 8 adjacent lanes
  /// take what is adjacent. `runs`: a bit for each row, set if its run is read.
  template <int Together>
  __device__ void copy_packed_values(uint32_t to, const char* base, int64_t offset, int first,
                                     unsigned runs) const {
    constexpr int kRuns = P::kCopyRows / P::kRunKeys, kColumns = 32 / Together;
#pragma unroll 1
    for (int i = 0; i < kRuns; i += Together) {
      const int run = i + lane % Together, row = first + run * P::kRunKeys;
      const bool valid = runs >> row & 1;
      const int64_t step = valid ? kColumns * params.kv.v_dim_stride : 0;
      const char* from = base;
      const int64_t mine = __shfl_sync(~0u, offset, row) + lane / Together * params.kv.v_dim_stride;
      if (valid) from += mine;
      uint32_t at = to + P::run_offset(static_cast<unsigned>(warp * kRuns + run)) +
                    static_cast<uint32_t>(lane / Together) * 16;
#pragma unroll kUnroll
      for (int column = 0; column < P::kDv; column += kColumns, from += step, at += kColumns * 16)
        copy_16(at, from, valid);
    }
  }

  /// Copies all of this warp's rows of K and V, which may lie anywhere, with the same strides.
  __device__ void copy_kv(uint32_t to, const char* k, const char* v, int64_t offset, int first) const {
    using Tile = typename P::KTile;
#pragma unroll kUnroll
    for (int i = 0; i < P::kCopyRows * Tile::kChunks / 32; ++i) {
      const int n = i * 32 + lane, row = n / Tile::kChunks, chunk = n % Tile::kChunks;
      const int64_t from = __shfl_sync(~0u, offset, first + row) + chunk * 16;
      const uint32_t at = to + chunk_offset<Tile>(row, chunk);
      copy_16(at, k + from);
      copy_16(at + P::kKBytes, v + from);
    }
  }

  /// Copies all of this warp's rows, which are `stride` bytes apart.
  template <class Tile>
  __device__ void copy_strided(uint32_t to, const char* from, int64_t stride) const {
    constexpr int kRowsPerStep = 32 / Tile::kChunks;
    static_assert(P::kCopyRows % kRowsPerStep == 0);
    const int row = lane / Tile::kChunks, chunk = lane % Tile::kChunks;
    if (row >= kRowsPerStep) return;
    from += row * stride + chunk * 16;
#pragma unroll kUnroll
    for (int i = 0; i < P::kCopyRows; i += kRowsPerStep) {
      copy_16(to + chunk_offset<Tile>(i + row, chunk), from);
      from += kRowsPerStep * stride;
    }
  }

  __device__ void copy_16(uint32_t to, const char* from, bool valid = true) const {
    cp_async_16(to, from, valid, cache_policy);
  }

  /// The offset in a tile of a 16-byte chunk of one of this warp's rows.
  template <class Tile>
  __device__ uint32_t chunk_offset(int row, int chunk) const {
    static_assert(P::kCopyRows * Tile::kChunks % 32 == 0);
    // kCopyRows is a multiple of 8, so the warp's first row does not change the swizzle.
    return static_cast<uint32_t>(warp * P::kCopyRows * Tile::kPitch) +
           Tile::offset(static_cast<unsigned>(row), static_cast<unsigned>(chunk));
  }
};

}  // namespace fovea::cuda::sm90
