#pragma once
// The loads of the CUDA-core decode kernel: each lane copies its 16-byte chunks of its warp's keys into its
// own part of a ring.
#include "kernels/cuda/simt/policy.h"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::simt {

/// The group of lanes that a lane belongs to, and its position there.
template <class P>
struct LanePlace {
  int lane, chunk, group;
  __device__ LanePlace() : lane(threadIdx.x % 32), chunk(lane % P::kLanes), group(lane / P::kLanes) {}
  /// The first of the lanes that hold the score of key i of this lane's group.
  __device__ int owner(int i) const { return group * P::kLanes + i * P::kSharers; }
  /// The key of a warp's step whose score this lane holds.
  __device__ int key() const { return lane / P::kSharers; }
};

/// Runs ahead of the arithmetic, across key tiles and work tiles (a WorkItem under one KV head). The page ids
/// of a step are loaded one step before its copies.
template <class P>
struct DecodeLoader {
  const AttentionParams& params;
  const LanePlace<P> place;
  const int num_work_tiles;
  const bool one_offset;  ///< K and V have the same strides
  const bool narrow;      ///< rows are aligned to 8 bytes only

  int work_index;  ///< work tile of the prepared step; >= num_work_tiles = none
  const char* k = nullptr;
  const char* v = nullptr;  ///< this lane's chunk of slot 0 of page 0
  int64_t pages = 0;
  int head = 0, key_last = 0, key_low = 0, sink_first = 0;
  int tile_key = 0;  ///< of the prepared step
  int32_t page = 0;  ///< of this lane's key, in flight
  int slot = 0;
  bool wanted = false;

  __device__ DecodeLoader(const AttentionParams& p, int work_tiles)
      : params(p),
        num_work_tiles(work_tiles),
        one_offset(p.kv.k_page_stride == p.kv.v_page_stride && p.kv.k_slot_stride == p.kv.v_slot_stride),
        narrow(P::kEightBit && ((p.head_dim | p.v_head_dim) & 8) != 0) {
    work_index = static_cast<int>(blockIdx.x) - static_cast<int>(gridDim.x);
    next_work_tile();
  }

  __device__ void next_work_tile() {
    int index;
    do {  // items without keys have no steps
      work_index += static_cast<int>(gridDim.x);
      if (work_index >= num_work_tiles) return;
      index = params.kv_heads.quotient(work_index);
      tile_key = params.items[index].key_first;
      key_last = params.items[index].key_last;
    } while (tile_key >= key_last);
    head = work_index - index * static_cast<int>(params.kv_heads.divisor);
    key_low = params.items[index].key_low;
    sink_first = params.items[index].sink_first;
    pages = params.items[index].pages;
    k = params.kv.k + head * params.kv.k_head_stride + place.chunk * 16;
    v = params.kv.v + head * params.kv.v_head_stride + place.chunk * 16;
    const int next = work_index + static_cast<int>(gridDim.x);
    if (next < num_work_tiles)
      asm volatile("prefetch.global.L1 [%0];" ::"l"(params.items + params.kv_heads.quotient(next)));
    prepare();
  }

  __device__ void prepare() {
    const int key = tile_key + static_cast<int>(threadIdx.x / 32) * P::kWarpKeys + place.key();
    wanted = key < key_last && (key >= key_low || (key >= sink_first && key < params.mask.sink_tokens));
    if (!wanted) return;
    const KvParams& kv = params.kv;
    if (kv.pages == nullptr) {
      slot = 0;
      page = static_cast<int32_t>(pages) + key;
    } else {
      const int index = kv.page_size.quotient(key);
      slot = key - index * static_cast<int>(kv.page_size.divisor);
      page = __ldg(kv.pages + pages + index);
    }
  }

  /// Copies 16 bytes of a row of `row_bytes` from chunk `chunk` on; zeros where the row or the chunk does not
  /// exist.
  __device__ void copy(uint32_t to, const char* from, bool row, int chunk, int row_bytes) const {
    const int left = row ? row_bytes - chunk * 16 : 0;
    if (P::kEightBit && narrow) {
      cp_async_8(to, left > 0 ? from : params.kv.k, left > 0);
      cp_async_8(to + 8, left > 8 ? from + 8 : params.kv.k, left > 8);
    } else {
      cp_async_16(to, left > 0 ? from : params.kv.k, left > 0);
    }
  }

  /// Copies the prepared step, if there is one, to the stage at `stage`, commits the group, and prepares the
  /// next step.
  __device__ void step(uint32_t stage) {
    if (work_index < num_work_tiles) {
      const KvParams& kv = params.kv;
      const uint32_t rows = __ballot_sync(~0u, wanted);
      const int64_t k_offset = planted_offset(page * kv.k_page_stride + slot * kv.k_slot_stride);
      const int64_t v_offset = planted_offset(page * kv.v_page_stride + slot * kv.v_slot_stride);
      const uint32_t to = stage + place.lane * 16;
      const int k_bytes = params.head_dim * (P::kEightBit ? 1 : 2);
      const int v_bytes = params.v_head_dim * (P::kEightBit ? 1 : 2);
#pragma unroll
      for (int i = 0; i < P::kGroupKeys; ++i) {
        const int owner = place.owner(i);
        const bool row = (rows >> owner & 1) != 0;
        const int64_t k_at = __shfl_sync(~0u, k_offset, owner);
        const int64_t v_at = one_offset ? k_at : __shfl_sync(~0u, v_offset, owner);
#pragma unroll
        for (int c = 0; c < P::kLaneChunks; ++c) {
          const uint32_t slot_to = to + (i * P::kLaneChunks + c) * 512;
          copy(slot_to, k + k_at + c * 512, row, place.chunk + 32 * c, k_bytes);
          copy(slot_to + P::kTileBytes, v + v_at + c * 512, row, place.chunk + 32 * c, v_bytes);
        }
      }
      if constexpr (P::kEightBit) {
        if (kv.k_scales != nullptr) {
          const int64_t at =
              page * kv.scale_page_stride + slot * kv.scale_slot_stride + head * kv.scale_head_stride;
          const uint32_t scales = stage + 2 * P::kTileBytes + place.lane * 4;
          cp_async_4(scales, wanted ? kv.k_scales + at : kv.k_scales, wanted);
          cp_async_4(scales + 128, wanted ? kv.v_scales + at : kv.v_scales, wanted);
        }
      }
      tile_key += P::kTileKeys;
      if (tile_key < key_last)
        prepare();
      else
        next_work_tile();
    }
    cp_async_commit();
  }
};

}  // namespace fovea::cuda::simt
