#pragma once
// The loads of the decode kernel: each warp copies its keys of every tile (16, or 32 of 8 bits) into its own
// ring.
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/sm80/copy_rows.cuh"
#include "kernels/cuda/sm80/work_queue.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

/// Runs ahead of the arithmetic, across key tiles and work tiles (a WorkItem under one KV head). The page ids
/// of a step are loaded one step before its copies, and the item of a work tile is prefetched one work tile
/// before, so that no copy waits for an address.
template <class P>
struct DecodeLoader {
  const AttentionParams& params;
  const int lane;
  const int group, part;  ///< which keys of a tile; which columns of V
  const WorkQueue& queue;
  const int num_work_tiles;
  /// Whether a warp's keys lie at a uniform stride (within one page, or ragged) and rows have the policy's
  /// head sizes.
  const bool uniform_stride;

  int ordinal = -1;  ///< position in the CTA's sequence of work tiles
  int work_index;    ///< work tile of the prepared step; >= num_work_tiles = none
  WorkItem item;     ///< of that work tile
  int head = 0;
  int key = 0;       ///< of this lane's row in the prepared step
  int32_t page = 0;  ///< its page id, in flight
  int slot = 0;
  bool wanted = false;

  __device__ DecodeLoader(const AttentionParams& p, const WorkQueue& work_queue)
      : params(p),
        lane(threadIdx.x % 32),
        group(threadIdx.x / 32 / P::kValueParts),
        part(threadIdx.x / 32 % P::kValueParts),
        queue(work_queue),
        num_work_tiles(work_queue.num_work_tiles),
        uniform_stride((p.kv.pages == nullptr || p.kv.page_size.divisor % P::kWarpKeys == 0) &&
                       p.head_dim == P::kD && p.v_head_dim == P::kDv) {
    next_work_tile();
  }

  __device__ void next_work_tile() {
    work_index = queue.at(++ordinal);
    if (work_index >= num_work_tiles) return;
    queue.claim(ordinal + 1);
    const int index = params.kv_heads.quotient(work_index);
    head = work_index - index * static_cast<int>(params.kv_heads.divisor);
    item = params.items[index];
    key = item.key_first + group * P::kWarpKeys + lane % P::kWarpKeys;
    prepare();
  }

  __device__ void prepare() {
    wanted =
        key < item.key_last &&
        (key >= item.key_low || (P::kGeneral && key >= item.sink_first && key < params.mask.sink_tokens));
    if (!wanted) return;
    const KvParams& kv = params.kv;
    if (kv.pages == nullptr) {
      slot = 0;
      page = static_cast<int32_t>(item.pages) + key;
    } else {
      const int index = kv.page_size.quotient(key);
      slot = key - index * static_cast<int>(kv.page_size.divisor);
      page = __ldg(kv.pages + item.pages + index);
    }
  }

  /// Copies the prepared step, if there is one, to the stage at `k_tile`, commits the group, and prepares the
  /// next step.
  __device__ void step(uint32_t k_tile) {
    if (work_index < num_work_tiles) {
      const KvParams& kv = params.kv;
      const int64_t k_offset = planted_offset(page * kv.k_page_stride + slot * kv.k_slot_stride);
      const int64_t v_offset = planted_offset(page * kv.v_page_stride + slot * kv.v_slot_stride);
      const uint32_t rows = __ballot_sync(~0u, wanted);
      const int v_begin = part * P::kPartDv * kv_bytes(P::kKv);
      if (P::kUniformStride && uniform_stride && __popc(rows) == 32) {
        // Whole rows at a uniform stride: the copies need one base address.
        const char* const k_first = kv.k + head * kv.k_head_stride + __shfl_sync(~0u, k_offset, 0);
        const char* const v_first = kv.v + head * kv.v_head_stride + v_begin + __shfl_sync(~0u, v_offset, 0);
        copy_strided_rows<typename P::KTile, P::kWarpKeys>(
            k_tile, 0, k_first, kv.pages == nullptr ? kv.k_page_stride : kv.k_slot_stride);
        copy_strided_rows<typename P::VTile, P::kWarpKeys>(
            k_tile + P::kKBytes, 0, v_first, kv.pages == nullptr ? kv.v_page_stride : kv.v_slot_stride);
      } else {
        copy_rows<typename P::KTile, P::kWarpKeys>(k_tile, 0, kv.k + head * kv.k_head_stride, k_offset, rows,
                                                   params.head_dim * kv_bytes(P::kKv));
        copy_rows<typename P::VTile, P::kWarpKeys>(k_tile + P::kKBytes, 0,
                                                   kv.v + head * kv.v_head_stride + v_begin, v_offset, rows,
                                                   params.v_head_dim * kv_bytes(P::kKv) - v_begin);
      }
      if constexpr (P::kEightBit) {
        if (kv.k_scales != nullptr) {
          const int64_t at =
              page * kv.scale_page_stride + slot * kv.scale_slot_stride + head * kv.scale_head_stride;
          const uint32_t to = k_tile + P::kKBytes + P::kVBytes + lane * 4;
          cp_async_4(to, wanted ? kv.k_scales + at : kv.k_scales, wanted);
          cp_async_4(to + P::kWarpKeys * 4, wanted ? kv.v_scales + at : kv.v_scales, wanted);
        }
      }
      key += P::kTileKeys;
      // Uniform over the CTA: depends on the first key of the tile only.
      if (key - group * P::kWarpKeys - lane % P::kWarpKeys < item.key_last)
        prepare();
      else
        next_work_tile();
    }
    cp_async_commit();
  }
};

}  // namespace fovea::cuda::sm80
