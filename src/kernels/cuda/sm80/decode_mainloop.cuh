#pragma once
// The loads of the decode kernel: each warp copies the 16 keys that it takes of every tile into its own ring.
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/sm80/copy_rows.cuh"
#include "kernels/cuda/sm80/unit_queue.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

/// Runs ahead of the arithmetic, over tiles and units (an item under one KV head) alike. A step's page ids
/// are asked for one step before its copies, and a unit's item one unit before, so that no copy waits for an
/// address.
template <class P>
struct DecodeLoader {
  const AttentionParams& params;
  const int lane;
  const int group, part;  ///< which keys of a tile, which columns of V
  const UnitQueue& queue;
  const int num_units;
  /// Whether a warp's keys lie at equal distances, within one page or ragged, in rows of the policy's sizes.
  const bool even;

  int place = -1;  ///< in the block's sequence of units
  int unit;        ///< the unit of the step prepared; >= num_units = none
  WorkItem item;   ///< of `unit`
  int head = 0;
  int key = 0;       ///< of this lane's row in the step prepared
  int32_t page = 0;  ///< its page id, arriving
  int slot = 0;
  bool wanted = false;

  __device__ DecodeLoader(const AttentionParams& p, const UnitQueue& units)
      : params(p),
        lane(threadIdx.x % 32),
        group(threadIdx.x / 32 / P::kValueParts),
        part(threadIdx.x / 32 % P::kValueParts),
        queue(units),
        num_units(units.num_units),
        even((p.kv.pages == nullptr || p.kv.page_size.divisor % P::kWarpKeys == 0) && p.head_dim == P::kD &&
             p.v_head_dim == P::kDv) {
    next_unit();
  }

  __device__ void next_unit() {
    unit = queue.at(++place);
    if (unit >= num_units) return;
    queue.claim(place + 1);
    const int index = params.kv_heads.quotient(unit);
    head = unit - index * static_cast<int>(params.kv_heads.divisor);
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

  /// Copies the step prepared, if there is one, to the stage at `k_tile`, closes the group, and prepares the
  /// next.
  __device__ void step(uint32_t k_tile) {
    if (unit < num_units) {
      const KvParams& kv = params.kv;
      const int64_t k_offset = planted_offset(page * kv.k_page_stride + slot * kv.k_slot_stride);
      const int64_t v_offset = planted_offset(page * kv.v_page_stride + slot * kv.v_slot_stride);
      const uint32_t rows = __ballot_sync(~0u, wanted);
      const int v_begin = part * P::kPartDv * kv_bytes(P::kKv);
      if (P::kEven && even && __popc(rows) == 32) {
        // Whole rows at equal distances: one address, which the copies step from.
        const char* const k_first = kv.k + head * kv.k_head_stride + __shfl_sync(~0u, k_offset, 0);
        const char* const v_first = kv.v + head * kv.v_head_stride + v_begin + __shfl_sync(~0u, v_offset, 0);
        copy_even_rows<typename P::KTile, P::kWarpKeys>(
            k_tile, 0, k_first, kv.pages == nullptr ? kv.k_page_stride : kv.k_slot_stride);
        copy_even_rows<typename P::VTile, P::kWarpKeys>(
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
      // The same for all warps: the tile's first key decides.
      if (key - group * P::kWarpKeys - lane % P::kWarpKeys < item.key_last)
        prepare();
      else
        next_unit();
    }
    cp_async_commit();
  }
};

}  // namespace fovea::cuda::sm80
