#pragma once
// Loads of the extend kernel: the ring of K and V slots.
#include <type_traits>

#include "kernels/cuda/sm80/copy_rows.cuh"
#include "kernels/cuda/sm80/params.h"
#include "kernels/cuda/sm80/widen.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::sm80 {

/// Slot n % kSlots holds K of tile n / 2 for even n, V for odd n.
template <class P>
struct ExtendRing {
  const AttentionParams& params;
  const WorkItem& item;
  const uint32_t slots, barriers, staging;
  const int head;
  const char *k_base, *v_base;
  const bool even_rows;  ///< a warp's rows of a tile lie in one page, or one after the other
  const int total;       ///< slots to fill: 2 for each tile

  int issued = 0, fetched = 0;
  int issue_slot = 0, issue_parity = 1;  ///< a fresh barrier counts as passed for parity 1
  int use_slot = 0, use_parity = 0;
  int key;
  int32_t page = 0;
  int slot_in_page = 0;
  bool wanted = false;

  __device__ uint32_t full(int slot) const { return barriers + slot * 16; }
  __device__ uint32_t empty(int slot) const { return barriers + slot * 16 + 8; }

  /// `staging_address`: of this warp.
  __device__ ExtendRing(const AttentionParams& p, const WorkItem& work, int kv_head, uint32_t slot_address,
                        uint32_t barrier_address, uint32_t staging_address)
      : params(p),
        item(work),
        slots(slot_address),
        barriers(barrier_address),
        staging(staging_address),
        head(kv_head),
        k_base(p.kv.k + kv_head * p.kv.k_head_stride),
        v_base(p.kv.v + kv_head * p.kv.v_head_stride),
        even_rows(p.kv.pages == nullptr || p.kv.page_size.divisor % P::kLoadRows == 0),
        total(2 * ((max(work.key_last - work.key_first, 0) + P::kTileKeys - 1) / P::kTileKeys)) {
    key = item.key_first + threadIdx.x / 32 * P::kLoadRows + threadIdx.x % P::kLoadRows;
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

  __device__ void prepare() {
    wanted = key < item.key_last && (key >= item.key_low || key < params.mask.sink_tokens);
    if (!wanted) return;
    const KvParams& kv = params.kv;
    if (kv.pages == nullptr) {
      slot_in_page = 0;
      page = static_cast<int32_t>(item.pages) + key;
    } else {
      const int index = kv.page_size.quotient(key);
      slot_in_page = key - index * static_cast<int>(kv.page_size.divisor);
      page = __ldg(kv.pages + item.pages + index);
    }
  }

  /// Asks for slot number `issued`, when its place has been left by all warps.
  template <bool IsV>
  __device__ void issue() {
    if constexpr (P::kEightBit) {
      issue_eight_bit<IsV>();
      return;
    }
    if (issued >= total) return;
    mbarrier_wait(empty(issue_slot), issue_parity);
    const int first_row = threadIdx.x / 32 * P::kLoadRows;
    const uint32_t tile = slots + issue_slot * P::kSlotBytes;
    copy<typename std::conditional_t<IsV, typename P::VTile, typename P::KTile>, IsV>(tile, first_row);
    if constexpr (IsV) next_tile();
    cp_async_mbarrier_arrive(full(issue_slot));
    issued_one();
  }

  __device__ void next_tile() {
    key += P::kTileKeys;
    prepare();
  }
  __device__ void issued_one() {
    ++issued;
    if (++issue_slot == P::kSlots) issue_slot = 0, issue_parity ^= 1;
  }

  template <class Tile, bool IsV>
  __device__ void copy(uint32_t tile, int first_row) const {
    const KvParams& kv = params.kv;
    const int row_bytes = (IsV ? params.v_head_dim : params.head_dim) * (P::kEightBit ? 1 : 2);
    const uint32_t rows = __ballot_sync(~0u, wanted);
    const char* const base = IsV ? v_base : k_base;
    const int64_t page_stride = IsV ? kv.v_page_stride : kv.k_page_stride;
    const int64_t slot_stride = IsV ? kv.v_slot_stride : kv.k_slot_stride;
    const int64_t offset = page * page_stride + slot_in_page * slot_stride;
    // The usual case: all rows there, at one distance from each other.
    if (even_rows && rows == ~0u && row_bytes == Tile::kChunks * 16)
      copy_even_rows<Tile, P::kLoadRows>(tile, first_row, base + __shfl_sync(~0u, offset, 0),
                                         kv.pages == nullptr ? page_stride : slot_stride);
    else
      copy_rows<Tile, P::kLoadRows>(tile, first_row, base, offset, rows, row_bytes);
  }

  /// Fetches slot `issued` + kStaging - 1 into this warp's staging, and widens what has come for slot
  /// `issued`.
  template <bool IsV>
  __device__ void issue_eight_bit() {
    static_assert(!P::kEightBit || P::kStaging % 2 == 1);
    fetch<IsV>();
    if (issued >= total) return;
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
    issued_one();
  }

  /// The next slot's rows and scales into staging; nothing, but a group, past the last.
  template <bool IsV>
  __device__ void fetch() {
    if (fetched < total) {
      const int lane = threadIdx.x % 32;
      const uint32_t to = staging + fetched % (P::kStaging > 0 ? P::kStaging : 1) * P::kStagingBytes;
      copy<TileLayout<IsV ? P::kDv : P::kD>, IsV>(to, 0);
      const KvParams& kv = params.kv;
      if (kv.k_scales != nullptr && lane < P::kLoadRows) {
        const float* scales = IsV ? kv.v_scales : kv.k_scales;
        const int64_t at =
            page * kv.scale_page_stride + slot_in_page * kv.scale_slot_stride + head * kv.scale_head_stride;
        cp_async_4(to + P::kStagingBytes - P::kLoadRows * 4 + lane * 4, wanted ? scales + at : scales,
                   wanted);
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
