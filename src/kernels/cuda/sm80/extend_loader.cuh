#pragma once
// Loads of the extend kernel: the ring of K and V slots.
#include <type_traits>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/widen.cuh"
#include "kernels/cuda/sm80/copy_rows.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

/// Addresses of a warp's rows of K and V, and their copies. kLoadLanes consecutive lanes copy a row, and each
/// looks up its page, so that no data is exchanged between lanes; no branch depends on the lane.
template <class P>
struct ExtendLoader {
  static constexpr int kLanes = P::kLoadLanes;
  static constexpr int kRowsAtOnce = 32 / kLanes;
  static constexpr int kRows = (P::kLoadRows + kRowsAtOnce - 1) / kRowsAtOnce;  ///< of a lane

  const AttentionParams& params;
  const WorkItem& item;  ///< in shared memory
  const int head;
  const int key_last;
  const int64_t first;  ///< where the sequence's pages begin in KvParams::pages; ragged: its first row

  int key;                           ///< first key of the tile to load next
  int32_t page[kRows], slot[kRows];  ///< of this lane's rows of that tile; page -1 = not read

  /// This lane's row of kRowsAtOnce, and its first chunk. Four lanes of a row use half of the banks, so rows
  /// 4 apart, which use the other half, are copied together.
  __device__ static unsigned lane_row() {
    const unsigned lane = threadIdx.x % 32;
    return kLanes == 4 ? lane / 4 % 2 * 4 + lane / 8 : lane / kLanes;
  }
  __device__ static unsigned lane_chunk() { return threadIdx.x % kLanes; }
  __device__ static int warp_first() { return static_cast<int>(threadIdx.x / 32 * P::kLoadRows); }

  __device__ ExtendLoader(const AttentionParams& p, const WorkItem& work, int kv_head)
      : params(p),
        item(work),
        head(kv_head),
        key_last(work.key_last),
        first(work.pages),
        key(work.key_first) {
    if (key < key_last) look_up();
  }

  /// Looks up the pages of the tile at `key`, which may lie past the end.
  __device__ __forceinline__ void look_up() {
    const FastDivisor& page_size = params.kv.page_size;  // 1 for ragged keys
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      int at = key + warp_first() + i * kRowsAtOnce + static_cast<int>(lane_row());
      if constexpr (P::kGeneral) {
        page[i] = -1;
        if (at >= key_last) continue;
        if (at < item.key_low && (at < item.sink_first || at >= params.mask.sink_tokens)) continue;
      } else {
        at = min(at, key_last - 1);
      }
      const int index = page_size.quotient(at);
      slot[i] = at - index * static_cast<int>(page_size.divisor);
      page[i] = static_cast<int32_t>(first) + at;
      if (params.kv.pages != nullptr) page[i] = __ldg(params.kv.pages + first + index);
    }
  }
  __device__ __forceinline__ void next_tile() {
    key += P::kTileKeys;
    look_up();
  }

  /// Whether this lane's row i of the tile is to be read.
  __device__ bool wanted(int i) const {
    if constexpr (P::kGeneral) return page[i] >= 0;
    return key + warp_first() + i * kRowsAtOnce + static_cast<int>(lane_row()) < key_last;
  }

  /// Copies K or V of the warp's rows to rows first_row, ... of a tile.
  template <class Tile, bool IsV>
  __device__ __forceinline__ void copy(uint32_t tile, unsigned first_row) const {
    const KvParams& kv = params.kv;
    const int row_bytes = (IsV ? params.v_head_dim : params.head_dim) * (P::kEightBit ? 1 : 2);
    const char* const base = IsV ? kv.v + head * kv.v_head_stride : kv.k + head * kv.k_head_stride;
    constexpr int kCopies = (Tile::kChunks + kLanes - 1) / kLanes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const unsigned row = i * kRowsAtOnce + lane_row();
      if (P::kLoadRows % kRowsAtOnce != 0 && row >= P::kLoadRows) break;
      // Except in general kernels, rows that are not wanted have a page too: the address of a copy must be
      // valid even where it reads nothing.
      const bool valid = wanted(i);
      const char* from = base;
      if (!P::kGeneral || valid)
        from += planted_offset<Mutation::prefill_offsets>(
            static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(page[i])) *
                                     static_cast<uint64_t>(IsV ? kv.v_page_stride : kv.k_page_stride) +
                                 static_cast<uint64_t>(static_cast<uint32_t>(slot[i])) *
                                     static_cast<uint64_t>(IsV ? kv.v_slot_stride : kv.k_slot_stride)));
      const uint32_t to = tile + Tile::offset(first_row + row, lane_chunk());
      if (Tile::kChunks % kLanes == 0 && row_bytes == Tile::kChunks * 16) {
#pragma unroll
        for (int c = 0; c < kCopies; ++c)
          cp_async_16(Tile::moved(to, c * kLanes), from + lane_chunk() * 16 + c * kLanes * 16, valid);
      } else {
#pragma unroll
        for (int c = 0; c < kCopies; ++c) {
          const int at = static_cast<int>(lane_chunk() + c * kLanes);
          const bool inside = at * 16 < row_bytes;
          if (Tile::kChunks % kLanes == 0 || at < Tile::kChunks)
            cp_async_16(Tile::moved(to, c * kLanes), inside ? from + at * 16 : base, inside && valid);
        }
      }
    }
  }
};

/// A double buffer of K and V tiles. The warps of a CTA meet at one barrier for each tile: before it the tile
/// has arrived, after it the next one is prefetched. For kernels with several CTAs per SM, which keep the
/// pipes busy for each other.
template <class P>
struct ExtendDoubleBuffer {
  static_assert(P::kSlots == 4 && P::kAhead == 2 && !P::kEightBit);
  ExtendLoader<P> loader;
  const uint32_t slots;
  uint32_t buffer;  ///< of the tile in use, 0 or 1

  __device__ ExtendDoubleBuffer(const AttentionParams& p, const WorkItem& work, int kv_head,
                                uint32_t slot_address, uint32_t, uint32_t)
      : loader(p, work, kv_head), slots(slot_address), buffer(1) {
    issue(0);
    cp_async_wait<0>();  // the queries too
  }

  __device__ __forceinline__ void issue(uint32_t to) {
    if (loader.key >= loader.key_last) return;
    const uint32_t tile = slots + to * (2 * P::kSlotBytes);
    loader.template copy<typename P::KTile, false>(tile, loader.warp_first());
    loader.template copy<typename P::VTile, true>(tile + P::kSlotBytes, loader.warp_first());
    loader.next_tile();
  }

  __device__ __forceinline__ void begin() {
    cp_async_wait_all();
    __syncthreads();
    issue(buffer);
    buffer ^= 1;
  }
  __device__ uint32_t keys() const { return slots + buffer * (2 * P::kSlotBytes); }
  __device__ uint32_t values() const { return keys() + P::kSlotBytes; }
  __device__ uint32_t key_factors() const { return 0; }
  __device__ uint32_t value_factors() const { return 0; }
  __device__ void keys_done() {}
  __device__ void values_done() {}
};

/// A ring of slots: slot n % params.stages holds K of tile n / 2 for even n, V for odd n. Slots are handed
/// over with mbarriers, so that the warps of the only CTA of an SM may drift apart and the softmax of one
/// overlaps the products of another. Where there are enough slots, the two of a tile are handed over
/// together.
template <class P>
struct ExtendRing {
  static constexpr bool kPairedSlots = P::kPairedSlots;
  ExtendLoader<P> loader;
  const uint32_t slots, barriers, staging;

  int issue_slot = 0, issue_parity = 1;  ///< waiting for parity 1 of a fresh barrier returns at once
  int use_slot = 0, use_parity = 0;
  int stage = 0;  ///< staging buffer of the 8-bit rows that are widened next

  __device__ uint32_t full(int slot) const { return barriers + slot * 16; }
  __device__ uint32_t empty(int slot) const { return barriers + slot * 16 + 8; }

  /// `staging_address`: this warp's staging ring.
  __device__ ExtendRing(const AttentionParams& p, const WorkItem& work, int kv_head, uint32_t slot_address,
                        uint32_t barrier_address, uint32_t staging_address)
      : loader(p, work, kv_head), slots(slot_address), barriers(barrier_address), staging(staging_address) {
    if constexpr (P::kEightBit) fetch<false>(0), fetch<true>(1);
#pragma unroll 1
    for (int n = 0; n < p.ahead; ++n) {
      if constexpr (kPairedSlots) {
        if (n % 2 == 0) issue_tile();
      } else if (n % 2 == 0) {
        issue<false>();
      } else {
        issue<true>();
      }
    }
    if constexpr (!P::kEightBit) cp_async_wait<0>();  // the group of the queries; K and V are in none
  }

  __device__ __forceinline__ void begin() {
    if constexpr (kPairedSlots) {
      issue_tile();
    } else {
      issue<P::kAhead % 2 == 1>();
    }
  }
  __device__ uint32_t keys() const { return wait(); }
  __device__ void keys_done() {
    if constexpr (kPairedSlots) return;
    release();
    issue<P::kAhead % 2 == 0>();
  }
  __device__ uint32_t values() const {
    return kPairedSlots ? slots + (use_slot + 1) * P::kSlotBytes : wait();
  }
  __device__ void values_done() { release(); }

  /// Prefetches the next tile into its slots when all warps have released them.
  __device__ __forceinline__ void issue_tile() {
    if constexpr (P::kEightBit) {
      issue_eight_bit();
      return;
    }
    if (loader.key >= loader.key_last) return;
    mbarrier_wait(empty(issue_slot), issue_parity);
    const uint32_t tile = slots + issue_slot * P::kSlotBytes;
    loader.template copy<typename P::KTile, false>(tile, loader.warp_first());
    loader.template copy<typename P::VTile, true>(tile + P::kSlotBytes, loader.warp_first());
    cp_async_mbarrier_arrive(full(issue_slot));
    loader.next_tile();
    issued_one();
  }

  /// The same for the next slot: K or V of a tile.
  template <bool IsV>
  __device__ __forceinline__ void issue() {
    if (loader.key >= loader.key_last) return;
    mbarrier_wait(empty(issue_slot), issue_parity);
    loader.template copy<typename std::conditional_t<IsV, typename P::VTile, typename P::KTile>, IsV>(
        slots + issue_slot * P::kSlotBytes, loader.warp_first());
    if constexpr (IsV) loader.next_tile();
    cp_async_mbarrier_arrive(full(issue_slot));
    issued_one();
  }

  __device__ void issued_one() {
    issue_slot += kPairedSlots ? 2 : 1;
    if (issue_slot == loader.params.stages) issue_slot = 0, issue_parity ^= 1;
  }

  /// Widens the tile before the one at loader.key, K and V as each arrives, and fetches the tile at
  /// loader.key.
  __device__ __forceinline__ void issue_eight_bit() {
    static_assert(!P::kEightBit || P::kStaging == 3);
    const bool exists = loader.key - P::kTileKeys < loader.key_last;
    const uint32_t tile = slots + issue_slot * P::kSlotBytes;
    fetch<false>(stage == 0 ? P::kStaging - 1 : stage - 1);
    cp_async_wait<(P::kStaging > 0 ? P::kStaging - 1 : 0)>();
    __syncwarp();
    if (exists) {
      mbarrier_wait(empty(issue_slot), issue_parity);
      widen_any<typename P::KTile, false>(tile);
    }
    next_stage();
    fetch<true>(stage == 0 ? P::kStaging - 1 : stage - 1);
    cp_async_wait<(P::kStaging > 0 ? P::kStaging - 1 : 0)>();
    __syncwarp();
    if (exists) {
      widen_any<typename P::VTile, true>(tile + P::kSlotBytes);
      mbarrier_arrive(full(issue_slot));
      issued_one();
    }
    next_stage();
  }
  __device__ void next_stage() {
    if (++stage == P::kStaging) stage = 0;
  }

  template <class To, bool IsV>
  __device__ __forceinline__ void widen_any(uint32_t to) const {
    const uint32_t from = staging + stage * P::kStagingBytes;
    switch (loader.params.kv.type) {
      case KvType::e4m3: widen_rows<KvType::e4m3, To, IsV>(to, from); break;
      case KvType::e5m2: widen_rows<KvType::e5m2, To, IsV>(to, from); break;
      default: widen_rows<KvType::int8, To, IsV>(to, from); break;
    }
  }

  /// Copies the rows and scales of the next slot into a buffer of this warp's staging ring. Past the last it
  /// only commits a group.
  template <bool IsV>
  __device__ void fetch(int stage_index) {
    using Loader = ExtendLoader<P>;
    if (loader.key < loader.key_last) {
      const uint32_t to = staging + stage_index * P::kStagingBytes;
      loader.template copy<TileLayout<IsV ? P::kDv : P::kD>, IsV>(to, 0);
      const KvParams& kv = loader.params.kv;
      if (kv.k_scales != nullptr && Loader::lane_chunk() == 0) {
        const float* scales = IsV ? kv.v_scales : kv.k_scales;
#pragma unroll
        for (int i = 0; i < Loader::kRows; ++i) {
          const unsigned row = i * Loader::kRowsAtOnce + Loader::lane_row();
          if (P::kLoadRows % Loader::kRowsAtOnce != 0 && row >= P::kLoadRows) break;
          const int64_t at = loader.page[i] * kv.scale_page_stride + loader.slot[i] * kv.scale_slot_stride +
                             loader.head * kv.scale_head_stride;
          const bool wanted = loader.wanted(i);
          cp_async_4(to + P::kStagingBytes - P::kLoadRows * 4 + row * 4, wanted ? scales + at : scales,
                     wanted);
        }
      }
      if constexpr (IsV) loader.next_tile();
    } else if constexpr (IsV) {
      loader.key += P::kTileKeys;  // nothing to look up: a sequence without keys does not even have a page
    }
    cp_async_commit();
  }

  template <KvType Type, class To, bool IsV>
  __device__ void widen_rows(uint32_t to, uint32_t from) const {
    constexpr int kChunks = (IsV ? P::kDv : P::kD) / 16, kTotal = kChunks * P::kLoadRows;
    using From = TileLayout<IsV ? P::kDv : P::kD>;
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * P::kLoadRows;
#pragma unroll
    for (int i = 0; i < (kTotal + 31) / 32; ++i) {
      const int index = i * 32 + lane, row = index / kChunks, chunk = index % kChunks;
      if (kTotal % 32 != 0 && index >= kTotal) break;
      uint32_t bytes[4];
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(bytes[0]), "=r"(bytes[1]), "=r"(bytes[2]), "=r"(bytes[3])
                   : "r"(from + From::offset(row, chunk))
                   : "memory");
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t low[2], high[2];
        widen<Type, typename P::Q>(low, bytes[2 * half]);
        widen<Type, typename P::Q>(high, bytes[2 * half + 1]);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                         to + To::offset(first_row + row, 2 * chunk + half)),
                     "r"(low[0]), "r"(low[1]), "r"(high[0]), "r"(high[1])
                     : "memory");
      }
    }
    if (loader.params.kv.k_scales != nullptr && lane < P::kLoadRows) {
      uint32_t scale;
      asm volatile("ld.shared.b32 %0, [%1];"
                   : "=r"(scale)
                   : "r"(from + P::kStagingBytes - P::kLoadRows * 4 + lane * 4)
                   : "memory");
      asm volatile(
          "st.shared.b32 [%0], %1;" ::"r"(to + P::kSlotBytes - P::kScaleBytes + (first_row + lane) * 4),
          "r"(scale)
          : "memory");
    }
  }

  __device__ uint32_t wait() const {
    mbarrier_wait(full(use_slot), use_parity);
    return slots + use_slot * P::kSlotBytes;
  }
  /// Addresses of the scales of 8-bit keys and values.
  __device__ uint32_t key_factors() const { return slots + (use_slot + 1) * P::kSlotBytes - P::kScaleBytes; }
  __device__ uint32_t value_factors() const { return key_factors() + P::kSlotBytes; }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(use_slot));
    use_slot += kPairedSlots ? 2 : 1;
    if (use_slot == loader.params.stages) use_slot = 0, use_parity ^= 1;
  }
};

}  // namespace fovea::cuda::sm80
