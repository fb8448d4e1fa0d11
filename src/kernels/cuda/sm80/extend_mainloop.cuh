#pragma once
// Loads of the extend kernel: the ring of K and V slots.
#include <type_traits>

#include "kernels/cuda/sm80/copy_rows.cuh"
#include "kernels/cuda/sm80/params.h"
#include "kernels/cuda/sm80/widen.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::sm80 {

/// Slot n % kSlots holds K of tile n / 2 for even n, V for odd n. Each warp loads its rows of every slot: a row is
/// that of kLoadLanes neighbours, who look up its page themselves, so that nothing is passed between lanes.
template <class P>
struct ExtendRing {
  static constexpr int kLanes = P::kLoadLanes;
  static constexpr int kRowsAtOnce = 32 / kLanes;
  static constexpr int kRows = (P::kLoadRows + kRowsAtOnce - 1) / kRowsAtOnce;  ///< of a lane

  const AttentionParams& params;
  const WorkItem& item;  ///< in shared memory
  const uint32_t slots, barriers, staging;
  const int head;
  const int key_last;

  int fetched = 0;
  int issue_slot = 0, issue_parity = 1;  ///< a fresh barrier counts as passed for parity 1
  int use_slot = 0, use_parity = 0;
  int issue_key;  ///< first key of the tile to ask for next
  int32_t page[kRows];  ///< of this lane's rows of that tile; -1 = of no interest
  int issued = 0;

  __device__ uint32_t full(int slot) const { return barriers + slot * 16; }
  __device__ uint32_t empty(int slot) const { return barriers + slot * 16 + 8; }

  /// This lane's row of kRowsAtOnce, and its first chunk. Four lanes of a row take half of the banks, so rows 4
  /// apart, which meet the other half, go side by side.
  __device__ static unsigned lane_row() {
    const unsigned lane = threadIdx.x % 32;
    return kLanes == 4 ? lane / 4 % 2 * 4 + lane / 8 : lane / kLanes;
  }
  __device__ static unsigned lane_chunk() { return threadIdx.x % kLanes; }

  /// `staging_address`: of this warp.
  __device__ ExtendRing(const AttentionParams& p, const WorkItem& work, int kv_head, uint32_t slot_address,
                        uint32_t barrier_address, uint32_t staging_address)
      : params(p),
        item(work),
        slots(slot_address),
        barriers(barrier_address),
        staging(staging_address),
        head(kv_head),
        key_last(work.key_last),
        issue_key(work.key_first) {
    prepare();
    if constexpr (P::kEightBit) {
#pragma unroll
      for (int n = 0; n < P::kStaging - 1; ++n) {
        if (n % 2 == 0)
          fetch<false>();
        else
          fetch<true>();
      }
    }
  }

  __device__ int row_key(int i) const {
    return issue_key + static_cast<int>(threadIdx.x / 32 * P::kLoadRows + i * kRowsAtOnce + lane_row());
  }

  /// Looks up the pages of the tile at issue_key.
  __device__ void prepare() {
    const KvParams& kv = params.kv;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int key = row_key(i);
      page[i] = -1;
      if (key >= key_last || (P::kGeneral && key < item.key_low && key >= params.mask.sink_tokens)) continue;
      page[i] = kv.pages == nullptr ? static_cast<int32_t>(item.pages) + key
                                    : __ldg(kv.pages + item.pages + kv.page_size.quotient(key));
    }
  }

  /// Asks for the next slot, when its place has been left by all warps.
  template <bool IsV>
  __device__ void issue() {
    if constexpr (P::kEightBit) {
      issue_eight_bit<IsV>();
      return;
    }
    if (issue_key >= key_last) return;
    mbarrier_wait(empty(issue_slot), issue_parity);
    const uint32_t tile = slots + issue_slot * P::kSlotBytes;
    copy<typename std::conditional_t<IsV, typename P::VTile, typename P::KTile>, IsV>(
        tile, threadIdx.x / 32 * P::kLoadRows);
    if constexpr (IsV) next_tile();
    cp_async_mbarrier_arrive(full(issue_slot));
    issued_one();
  }

  __device__ void next_tile() {
    issue_key += P::kTileKeys;
    prepare();
  }
  __device__ void issued_one() {
    if (++issue_slot == P::kSlots) issue_slot = 0, issue_parity ^= 1;
  }

  template <class Tile, bool IsV>
  __device__ void copy(uint32_t tile, unsigned first_row) const {
    const KvParams& kv = params.kv;
    const int row_bytes = (IsV ? params.v_head_dim : params.head_dim) * (P::kEightBit ? 1 : 2);
    const char* const base = IsV ? kv.v + head * kv.v_head_stride : kv.k + head * kv.k_head_stride;
    const int64_t page_stride = IsV ? kv.v_page_stride : kv.k_page_stride;
    const int64_t slot_stride = IsV ? kv.v_slot_stride : kv.k_slot_stride;
    constexpr int kCopies = (Tile::kChunks + kLanes - 1) / kLanes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const unsigned row = i * kRowsAtOnce + lane_row();
      if (P::kLoadRows % kRowsAtOnce != 0 && row >= P::kLoadRows) break;
      const bool wanted = page[i] >= 0;
      const char* from = base;
      if (wanted) {
        from += page[i] * page_stride;
        if (kv.pages != nullptr) {
          const int key = row_key(i);
          from += (key - kv.page_size.quotient(key) * static_cast<int>(kv.page_size.divisor)) * slot_stride;
        }
      }
      const uint32_t to = tile + Tile::offset(first_row + row, lane_chunk());
      if (Tile::kChunks % kLanes == 0 && row_bytes == Tile::kChunks * 16) {
        from += lane_chunk() * 16;
#pragma unroll
        for (int c = 0; c < kCopies; ++c)
          cp_async_16(Tile::moved(to, c * kLanes), from + c * kLanes * 16, wanted);
      } else {
#pragma unroll
        for (int c = 0; c < kCopies; ++c) {
          const int at = static_cast<int>(lane_chunk() + c * kLanes);
          const bool valid = wanted && at * 16 < row_bytes;
          if (Tile::kChunks % kLanes == 0 || at < Tile::kChunks)
            cp_async_16(Tile::moved(to, c * kLanes), valid ? from + at * 16 : base, valid);
        }
      }
    }
  }

  /// Fetches slot `issued` + kStaging - 1 into this warp's staging, and widens what has come for slot
  /// `issued`.
  template <bool IsV>
  __device__ void issue_eight_bit() {
    static_assert(!P::kEightBit || P::kStaging % 2 == 1);
    fetch<IsV>();
    if (issued >= 2 * tiles()) return;
    cp_async_wait<(P::kStaging > 0 ? P::kStaging - 1 : 0)>();
    __syncwarp();
    mbarrier_wait(empty(issue_slot), issue_parity);
    const uint32_t to = slots + issue_slot * P::kSlotBytes;
    const uint32_t from = staging + issued % (P::kStaging > 0 ? P::kStaging : 1) * P::kStagingBytes;
    using To = typename std::conditional_t<IsV, typename P::VTile, typename P::KTile>;
    switch (params.kv.type) {
      case KvType::e4m3: widen_rows<KvType::e4m3, To, IsV>(to, from); break;
      case KvType::e5m2: widen_rows<KvType::e5m2, To, IsV>(to, from); break;
      default: widen_rows<KvType::int8, To, IsV>(to, from); break;
    }
    mbarrier_arrive(full(issue_slot));
    ++issued;
    issued_one();
  }

  __device__ int tiles() const {
    return (max(key_last - item.key_first, 0) + P::kTileKeys - 1) / P::kTileKeys;
  }

  /// The next slot's rows and scales into staging; nothing, but a group, past the last.
  template <bool IsV>
  __device__ void fetch() {
    if (fetched < 2 * tiles()) {
      const uint32_t to = staging + fetched % (P::kStaging > 0 ? P::kStaging : 1) * P::kStagingBytes;
      copy<TileLayout<IsV ? P::kDv : P::kD>, IsV>(to, 0);
      const KvParams& kv = params.kv;
      if (kv.k_scales != nullptr && lane_chunk() == 0) {
        const float* scales = IsV ? kv.v_scales : kv.k_scales;
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          const unsigned row = i * kRowsAtOnce + lane_row();
          if (P::kLoadRows % kRowsAtOnce != 0 && row >= P::kLoadRows) break;
          const int key = row_key(i);
          const int slot = key - kv.page_size.quotient(key) * static_cast<int>(kv.page_size.divisor);
          const int64_t at = page[i] * kv.scale_page_stride +
                             (kv.pages == nullptr ? 0 : slot) * kv.scale_slot_stride +
                             head * kv.scale_head_stride;
          cp_async_4(to + P::kStagingBytes - P::kLoadRows * 4 + row * 4, page[i] >= 0 ? scales + at : scales,
                     page[i] >= 0);
        }
      }
      if constexpr (IsV) next_tile();
      ++fetched;
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
    if (params.kv.k_scales != nullptr && lane < P::kLoadRows) {
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
  /// Factors of the slot in use, of 8-bit keys.
  __device__ uint32_t scales() const { return slots + (use_slot + 1) * P::kSlotBytes - P::kScaleBytes; }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(use_slot));
    if (++use_slot == P::kSlots) use_slot = 0, use_parity ^= 1;
  }
};

}  // namespace fovea::cuda::sm80
