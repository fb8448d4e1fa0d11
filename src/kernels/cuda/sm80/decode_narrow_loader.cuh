#pragma once
// The loads of the narrow decode kernel: each warp loads its keys of every tile into registers.
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

/// Loads `Words` words at `from` without allocating in L1: each is read once.
template <int Words>
__device__ __forceinline__ void load_once(uint32_t (&r)[Words], const char* from) {
  static_assert(Words == 2 || Words == 4);
  if constexpr (Words == 4)
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "l"(from));
  else
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1])
                 : "l"(from));
}
/// Zeros, without reading, where not `valid`.
template <int Words>
__device__ __forceinline__ void load_once(uint32_t (&r)[Words], const char* from, bool valid) {
#pragma unroll
  for (int i = 0; i < Words; ++i)
    r[i] = 0;
  if (valid) load_once(r, from);
}

/// Runs one tile ahead of the arithmetic, across key tiles and work tiles (a WorkItem under one KV head).
/// Page ids are loaded one tile before their keys, and items are prefetched two work tiles before, so that no
/// load waits for an address.
template <class P>
struct NarrowLoader {
  static constexpr uint32_t kAllRows = P::kWarpKeys == 32 ? ~0u : (1u << P::kWarpKeys) - 1;

  const AttentionParams& params;
  const int lane, g, q;
  const int num_work_tiles;
  /// Whether a warp's keys lie at a uniform stride: within one page, or ragged.
  const bool uniform_stride;
  const bool whole;  ///< rows have the policy's head sizes

  uint32_t k[P::kKeyTiles][2][P::kKChunks][4];             ///< keys g and g + 8
  uint32_t v[P::kKeyTiles][4][P::kVSets][P::kVBytes / 4];  ///< keys 2 q, 2 q + 1, 2 q + 8, 2 q + 9
  float k_scale = 0, v_scale = 0;                          ///< of this lane's key; unused by 16-bit kernels

  // The next position, whose keys are not in registers yet.
  int work_index;  ///< >= num_work_tiles = none
  int head = 0;
  int64_t pages = 0;
  int key = 0;                                    ///< this warp's first key
  int key_last = 0, key_low = 0, sink_first = 0;  ///< of the work tile
  int32_t page = 0;     ///< of this lane's key, in flight; with `uniform_stride` of all
  int slot = 0;         ///< of this lane's key; with `uniform_stride` of the warp's first
  bool wanted = false;  ///< whether this lane's key is to be read

  // The position set by begin().
  int64_t k_at = 0, v_at = 0;  ///< bytes of this lane's key, with `uniform_stride` of the warp's first
  uint32_t rows = 0;           ///< which keys are to be read

  __device__ NarrowLoader(const AttentionParams& p, int work_tiles, const WorkItem& first)
      : params(p),
        lane(threadIdx.x % 32),
        g(lane / 4),
        q(lane % 4),
        num_work_tiles(work_tiles),
        uniform_stride(p.kv.pages == nullptr || p.kv.page_size.divisor % P::kWarpKeys == 0),
        whole(p.head_dim == P::kD && p.v_head_dim == P::kDv),
        work_index(static_cast<int>(blockIdx.x)) {
    prefetch(work_index + static_cast<int>(gridDim.x));
    if (work_index < num_work_tiles) enter(first);
  }

  __device__ bool more() const { return work_index < num_work_tiles; }

  /// Makes the prepared position the current one, for load_k() and load_v(), and prepares the next.
  __device__ void begin() {
    const KvParams& kv = params.kv;
    rows = __ballot_sync(~0u, wanted) & kAllRows;
    k_at = planted_offset(page * kv.k_page_stride + slot * kv.k_slot_stride + head * kv.k_head_stride);
    v_at = planted_offset(page * kv.v_page_stride + slot * kv.v_slot_stride + head * kv.v_head_stride);
    if constexpr (P::kEightBit) {
      if (kv.k_scales != nullptr) {
        k_scale = v_scale = 0;
        if (wanted) {
          const int inside = uniform_stride ? lane % P::kWarpKeys : 0;
          const int64_t at = page * kv.scale_page_stride + slot * kv.scale_slot_stride +
                             head * kv.scale_head_stride +
                             inside * (kv.pages == nullptr ? kv.scale_page_stride : kv.scale_slot_stride);
          k_scale = __ldg(kv.k_scales + at);
          v_scale = __ldg(kv.v_scales + at);
        }
      }
    }
    key += P::kTileKeys;
    // Uniform over the CTA: depends on the first key of the tile only.
    if (key - static_cast<int>(threadIdx.x) / 32 * P::kWarpKeys < key_last)
      prepare();
    else
      next_work_tile();
  }

  __device__ void load_k() {
    const char* const from = params.kv.k + 16 * q;
    const int64_t stride = params.kv.pages == nullptr ? params.kv.k_page_stride : params.kv.k_slot_stride;
    const bool all = whole && rows == kAllRows;
#pragma unroll
    for (int m = 0; m < P::kKeyTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = 16 * m + 8 * h + g;
        const char* const at = from + row_offset(k_at, row, stride);
        if (all) {
#pragma unroll
          for (int i = 0; i < P::kKChunks; ++i)
            load_once(k[m][h][i], at + 64 * i);
        } else {
#pragma unroll
          for (int i = 0; i < P::kKChunks; ++i)
            load_once(k[m][h][i], at + 64 * i,
                      (rows >> row & 1) != 0 && 64 * i + 16 * q < params.head_dim * kv_bytes(P::kKv));
        }
      }
  }

  __device__ void load_v() {
    const char* const from = params.kv.v + P::kVBytes * g;
    const int64_t stride = params.kv.pages == nullptr ? params.kv.v_page_stride : params.kv.v_slot_stride;
    const bool all = whole && rows == kAllRows && P::kDv % (8 * P::kVDims) == 0;
#pragma unroll
    for (int m = 0; m < P::kKeyTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * m + 8 * (i / 2) + 2 * q + i % 2;
        const char* const at = from + row_offset(v_at, row, stride);
        if (all) {
#pragma unroll
          for (int s = 0; s < P::kVSets; ++s)
            load_once(v[m][i][s], at + 8 * P::kVBytes * s);
        } else {
#pragma unroll
          for (int s = 0; s < P::kVSets; ++s)
            load_once(
                v[m][i][s], at + 8 * P::kVBytes * s,
                (rows >> row & 1) != 0 && P::kVBytes * (8 * s + g) < params.v_head_dim * kv_bytes(P::kKv));
        }
      }
  }

 private:
  __device__ int64_t row_offset(int64_t at, int row, int64_t stride) const {
    return uniform_stride ? at + row * stride : __shfl_sync(~0u, at, row);
  }

  __device__ void next_work_tile() {
    work_index += static_cast<int>(gridDim.x);
    if (work_index < num_work_tiles) enter(params.items[params.kv_heads.quotient(work_index)]);
  }

  __device__ void prefetch(int u) const {
    if (u < num_work_tiles) prefetch_l1(params.items + params.kv_heads.quotient(u));
  }

  /// Begins the work tile `work_index`; items without keys have no position and are skipped.
  __device__ void enter(WorkItem item) {
    prefetch(work_index + 2 * static_cast<int>(gridDim.x));
    while (item.key_first >= item.key_last) {
      work_index += static_cast<int>(gridDim.x);
      if (work_index >= num_work_tiles) return;
      item = params.items[params.kv_heads.quotient(work_index)];
    }
    head = work_index - params.kv_heads.quotient(work_index) * static_cast<int>(params.kv_heads.divisor);
    pages = item.pages;
    key = item.key_first + static_cast<int>(threadIdx.x) / 32 * P::kWarpKeys;
    key_last = item.key_last;
    key_low = item.key_low, sink_first = item.sink_first;
    prepare();
  }

  __device__ void prepare() {
    const int mine = key + lane % P::kWarpKeys;
    wanted = mine < key_last &&
             (mine >= key_low || (P::kGeneral && mine >= sink_first && mine < params.mask.sink_tokens));
    const bool needed = uniform_stride ? __any_sync(~0u, wanted) : wanted;
    if (!needed) return;
    const KvParams& kv = params.kv;
    const int of = uniform_stride ? key : mine;
    if (kv.pages == nullptr) {
      slot = 0;
      page = static_cast<int32_t>(pages) + of;
    } else {
      const int index = kv.page_size.quotient(of);
      slot = of - index * static_cast<int>(kv.page_size.divisor);
      page = __ldg(kv.pages + pages + index);
    }
  }
};

}  // namespace fovea::cuda::sm80
