#pragma once
// Loads of the extend kernel: rows of 16-byte chunks by one warp, and the ring of K and V slots.
#include "kernels/cuda/sm80/params.h"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"

namespace fovea::cuda::sm80 {

/// Rows first_row, ... of a tile from `base` + each lane's `offset`: lane r has that of row r < Rows; bits of `rows`
/// say which exist, the others become 0, like what is past `row_bytes`.
template <class Tile, int Rows>
__device__ __forceinline__ void copy_rows(uint32_t tile, int first_row, const char* base, int64_t offset,
                                          uint32_t rows, int row_bytes) {
  constexpr int kTotal = Rows * Tile::kChunks;
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < (kTotal + 31) / 32; ++i) {
    const int index = i * 32 + lane;
    const int row = kTotal % 32 == 0 ? index / Tile::kChunks : min(index / Tile::kChunks, Rows - 1);
    const int chunk = index - row * Tile::kChunks;
    const int64_t row_offset = __shfl_sync(~0u, offset, row);
    const bool valid = (rows >> row & 1) != 0 && chunk * 16 < row_bytes;
    if (kTotal % 32 == 0 || index < kTotal)
      cp_async_16(tile + Tile::offset(first_row + row, chunk), valid ? base + row_offset + chunk * 16 : base,
                  valid);
  }
}

/// Slot n % kSlots holds K of tile n / 2 for even n, V for odd n.
template <class P>
struct ExtendRing {
  const AttentionParams& params;
  const WorkItem& item;
  const uint32_t slots, barriers;
  const char *k_base, *v_base;
  const int total;  ///< slots to fill: 2 for each tile

  int issued = 0;
  int issue_slot = 0, issue_parity = 1;  ///< a fresh barrier counts as passed for parity 1
  int use_slot = 0, use_parity = 0;
  int key;
  int32_t page = 0;
  int slot_in_page = 0;
  bool wanted = false;

  __device__ uint32_t full(int slot) const { return barriers + slot * 16; }
  __device__ uint32_t empty(int slot) const { return barriers + slot * 16 + 8; }

  __device__ ExtendRing(const AttentionParams& p, const WorkItem& work, int head, uint32_t slot_address,
                        uint32_t barrier_address)
      : params(p),
        item(work),
        slots(slot_address),
        barriers(barrier_address),
        k_base(p.kv.k + head * p.kv.k_head_stride),
        v_base(p.kv.v + head * p.kv.v_head_stride),
        total(2 * ((max(work.key_last - work.key_first, 0) + P::kTileKeys - 1) / P::kTileKeys)) {
    key = item.key_first + threadIdx.x / 32 * P::kLoadRows + threadIdx.x % P::kLoadRows;
    prepare();
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
    if (issued >= total) return;
    mbarrier_wait(empty(issue_slot), issue_parity);
    const KvParams& kv = params.kv;
    const uint32_t tile = slots + issue_slot * P::kSlotBytes;
    const int first_row = threadIdx.x / 32 * P::kLoadRows;
    const uint32_t rows = __ballot_sync(~0u, wanted);
    if constexpr (!IsV) {
      copy_rows<typename P::KTile, P::kLoadRows>(tile, first_row, k_base,
                                                 page * kv.k_page_stride + slot_in_page * kv.k_slot_stride, rows,
                                                 params.head_dim * static_cast<int>(sizeof(typename P::Kv)));
    } else {
      copy_rows<typename P::VTile, P::kLoadRows>(tile, first_row, v_base,
                                                 page * kv.v_page_stride + slot_in_page * kv.v_slot_stride, rows,
                                                 params.v_head_dim * static_cast<int>(sizeof(typename P::Kv)));
      key += P::kTileKeys;
      prepare();
    }
    cp_async_mbarrier_arrive(full(issue_slot));
    ++issued;
    if (++issue_slot == P::kSlots) issue_slot = 0, issue_parity ^= 1;
  }

  __device__ uint32_t wait() const {
    mbarrier_wait(full(use_slot), use_parity);
    return slots + use_slot * P::kSlotBytes;
  }
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty(use_slot));
    if (++use_slot == P::kSlots) use_slot = 0, use_parity ^= 1;
  }
};

}  // namespace fovea::cuda::sm80
