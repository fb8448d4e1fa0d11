#pragma once
// Extend (prefill): tiles of packed query rows against all keys that they see, key tile by key tile from the
// first on. One CTA computes one work tile (a WorkItem under one KV head).
#include <type_traits>

#include "kernels/cuda/sm80/extend_epilogue.cuh"
#include "kernels/cuda/sm80/extend_loader.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::sm80 {

/// Rescale threshold, in log2 units: row_max may lie this far below the largest score of its row before O is
/// rescaled. A threshold of 2^8 costs no bit of the sums and avoids rescaling O in nearly every tile. Whether
/// a row is rescaled depends on its own scores only. With scales per token, a probability times its scale and
/// KvParams::v_gain is up to 8/7 2^threshold times the token's largest value: 2^8 would exceed fp16 at values
/// of 224, 2^2 exceeds it beyond 14000.
template <class P>
inline constexpr float kRescaleThresholdLog2 =
    P::kEightBit && std::is_same_v<typename P::Q, __half> ? 2.0f : 8.0f;
/// Replaces -inf while a row has seen no key: differences with it are never NaN.
inline constexpr float kNegInfFinite = -0x1.fffffep+127f;

/// The softmax state of a warp's rows. `row_max` is the maximum over some prefix of a row's keys; `row_sum`
/// is this lane's share of the sum.
template <class P>
struct ExtendState {
  float o[P::kRowTiles][P::kPartDv / 8][4];
  float row_max[P::kRowTiles][2], row_sum[P::kRowTiles][2];

  __device__ void reset() {
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t) {
#pragma unroll
      for (int j = 0; j < P::kPartDv / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          o[t][j][i] = 0.0f;
#pragma unroll
      for (int h = 0; h < 2; ++h)
        row_max[t][h] = kNegInfFinite, row_sum[t][h] = 0.0f;
    }
  }

  /// Before the scores of a tile are used: updates row_max where it grew past the rescale threshold, and
  /// rescales O and row_sum.
  __device__ void update_row_max(const float (&s)[P::kRowTiles][P::kTileKeys / 8][4], float scale) {
    // The outer loop is over keys, the inner loops over rows: with two warps per scheduler, the dependency
    // chains of four rows must be interleaved to hide the latency of an instruction.
    float top[P::kRowTiles][2];
#pragma unroll
    for (int n = 0; n < P::kTileKeys / 8; ++n)
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float larger = fmaxf(s[t][n][2 * h], s[t][n][2 * h + 1]);
          top[t][h] = n == 0 ? larger : fmaxf(top[t][h], larger);
        }
    bool exceeded = false;
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        exceeded |= fmaf(top[t][h], scale, -kRescaleThresholdLog2<P>) > row_max[t][h];
    if (!__any_sync(~0u, exceeded)) return;
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float maximum = quad_max(top[t][h]);
        const float old = row_max[t][h];
        if (fmaf(maximum, scale, -kRescaleThresholdLog2<P>) > old) row_max[t][h] = maximum * scale;
        const float f = exp2_approx(old - row_max[t][h]);
        row_sum[t][h] *= f;
#pragma unroll
        for (int j = 0; j < P::kPartDv / 8; ++j)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            o[t][j][2 * h + i] *= f;
      }
  }

  /// Score `index` of a group of 16 keys -> its unrounded probability, in the same register. Row sums are in
  /// the order of the keys.
  __device__ __forceinline__ void exponentiate(float (&s)[P::kRowTiles][P::kTileKeys / 8][4], int group,
                                               int index, float scale) {
    const int h = index % 2, t = index / 2 % P::kRowTiles, e = index / (2 * P::kRowTiles);
    float& x = s[t][2 * group + e / 2][2 * h + e % 2];
    x = exp2_approx(fmaf(x, scale, -row_max[t][h]));
    row_sum[t][h] += x;
  }
  static constexpr int kGroupScores = P::kRowTiles * 8;

  /// Restores -inf, which the epilogue expects for rows that have seen no key.
  __device__ void finish() {
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        if (row_max[t][h] == kNegInfFinite) row_max[t][h] = -INFINITY;
  }
};

/// Loads the factors of two consecutive keys of a tile, fp32 in shared memory.
__device__ __forceinline__ float2 load_factors(uint32_t factors, int key) {
  float2 f;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(f.x), "=f"(f.y) : "r"(factors + key * 4) : "memory");
  return f;
}

/// S = Q K^T for the rows of a warp and the keys of a tile.
template <class P>
struct ExtendScores {
  uint32_t q_row, k_row;  ///< this lane's addresses for ldmatrix: in the queries, and relative to a tile
  uint32_t q_registers[P::kRowTiles][P::kQueryRegisterSteps > 0 ? P::kQueryRegisterSteps : 1][4];

  __device__ explicit ExtendScores(uint32_t query) {
    // tiles/mma.cuh documents which lane's row of ldmatrix goes to which fragment.
    const unsigned lane = threadIdx.x % 32;
    q_row = query + P::QTile::offset(lane % 16, lane / 16);
    k_row = P::KTile::offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int k = 0; k < P::kQueryRegisterSteps; ++k)
        ldmatrix_x4(q_registers[t][k], P::QTile::moved(q_row, 2 * k) + t * 16 * P::QTile::kPitch);
  }

  __device__ void operator()(float (&s)[P::kRowTiles][P::kTileKeys / 8][4], uint32_t k_tile) const {
    const uint32_t k_address = k_tile + k_row;
#pragma unroll
    for (int k = 0; k < P::kD / 16; ++k) {
      uint32_t a[P::kRowTiles][4];
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t) {
        if (k < P::kQueryRegisterSteps) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            a[t][i] = q_registers[t][k < P::kQueryRegisterSteps ? k : 0][i];
        } else {
          ldmatrix_x4(a[t], P::QTile::moved(q_row, 2 * k) + t * 16 * P::QTile::kPitch);
        }
      }
      const uint32_t address = P::KTile::moved(k_address, 2 * k);
#pragma unroll
      for (int n = 0; n < P::kTileKeys / 16; ++n) {
        uint32_t b[4];
        ldmatrix_x4(b, address + n * 16 * P::KTile::kPitch);
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t) {
          if (k == 0) {
            Mma<typename P::Q>::k16_first(s[t][2 * n], a[t], b[0], b[1]);
            Mma<typename P::Q>::k16_first(s[t][2 * n + 1], a[t], b[2], b[3]);
          } else {
            Mma<typename P::Q>::k16(s[t][2 * n], a[t], b[0], b[1]);
            Mma<typename P::Q>::k16(s[t][2 * n + 1], a[t], b[2], b[3]);
          }
        }
      }
    }
  }
};

/// O += 2^(S - row_max) V. The exponentials of 16 keys are interleaved with the products of the 16 before, so
/// that one warp keeps both pipes of its scheduler busy. `factors`: scales of 8-bit values, or 0.
template <class P>
__device__ __forceinline__ void extend_pv(ExtendState<P>& state,
                                          float (&s)[P::kRowTiles][P::kTileKeys / 8][4], float scale,
                                          uint32_t v_row, uint32_t factors, float gain) {
  constexpr int kGroups = P::kTileKeys / 16, kSteps = P::kPartDv / 16, kScores = ExtendState<P>::kGroupScores;
#pragma unroll
  for (int i = 0; i < kScores; ++i)
    state.exponentiate(s, 0, i, scale);
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
    if (P::kEightBit && factors != 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 f = load_factors(factors, n * 16 + half * 8 + threadIdx.x % 4 * 2);
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            s[t][2 * n + half][i] *= (i % 2 == 0 ? f.x : f.y) * gain;
      }
    }
    uint32_t p[P::kRowTiles][4];
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[t][i] = pack<typename P::Q>(s[t][2 * n + i / 2][2 * (i % 2)], s[t][2 * n + i / 2][2 * (i % 2) + 1]);
#pragma unroll
    for (int j = 0; j < kSteps; ++j) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, P::VTile::moved(v_row, 2 * j) + n * 16 * P::VTile::kPitch);
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t) {
        Mma<typename P::Q>::k16(state.o[t][2 * j], p[t], b[0], b[1]);
        Mma<typename P::Q>::k16(state.o[t][2 * j + 1], p[t], b[2], b[3]);
      }
      if (n + 1 < kGroups) {
#pragma unroll
        for (int i = j * kScores / kSteps; i < (j + 1) * kScores / kSteps; ++i)
          state.exponentiate(s, n + 1, i, scale);
      }
    }
  }
}

/// Sets scores past the last key of a row, which is the causal limit or the end of the keys, to -inf.
template <class P>
__device__ __forceinline__ void mask_last_keys(float (&s)[P::kRowTiles][P::kTileKeys / 8][4],
                                               const AttentionParams& params, const WorkItem& item,
                                               int warp_row, int key0) {
  const int lane = threadIdx.x % 32, shift = item.n_k - item.n_q;
#pragma unroll
  for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int limit = item.key_last;
      if (params.mask.causal)
        limit = min(limit, params.group.quotient(warp_row + t * 16 + h * 8 + lane / 4) + shift + 1);
      limit -= key0 + 2 * (lane % 4);
#pragma unroll
      for (int i = 0; i < P::kTileKeys / 4; ++i)
        if (i / 2 * 8 + i % 2 >= limit) s[t][i / 2][2 * h + i % 2] = -INFINITY;
    }
}

template <class P>
__device__ __forceinline__ void general_scores(float (&s)[P::kRowTiles][P::kTileKeys / 8][4],
                                               const AttentionParams& params, const WorkItem& item,
                                               int warp_row, int key0, int head) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const RowContext r = row_context(params, item, warp_row + t * 16 + h * 8 + lane / 4, head);
#pragma unroll
      for (int i = 0; i < P::kTileKeys / 4; ++i) {
        float& x = s[t][i / 2][2 * h + i % 2];
        const int key = key0 + i / 2 * 8 + 2 * (lane % 4) + i % 2;
        x = key < item.key_last ? general_score(params, item, r, key, x) : -INFINITY;
      }
    }
}

template <class P>
__global__ __launch_bounds__(P::kThreads, P::kBlocksPerSm) void extend_kernel(
    const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  // In shared memory, not registers: most of it is for masks and the epilogue.
  WorkItem& item = *reinterpret_cast<WorkItem*>(shared + P::kItemOffset);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  grid_launch_dependents();
  grid_dependency_wait();
  // Items are taken from the last to the first, so that the row tiles of a causal sequence with the most keys
  // start first.
  const int from_end = params.kv_heads.quotient(static_cast<int>(blockIdx.x)), items = *params.num_items;
  if (from_end >= items) return;
  const int head = static_cast<int>(blockIdx.x) - from_end * static_cast<int>(params.kv_heads.divisor);
  if (threadIdx.x < sizeof(WorkItem) / 4)
    reinterpret_cast<int32_t*>(&item)[threadIdx.x] =
        reinterpret_cast<const int32_t*>(params.items + (items - 1 - from_end))[threadIdx.x];

  const int group = warp / P::kValueParts, part = warp % P::kValueParts;
  char* const query = shared + group * P::kQueryBytes;
  const uint32_t base = shared_address(shared), barriers = base + P::kBarriersOffset;
  if (!P::kLockstep && threadIdx.x == 0)
    for (int s = 0; s < params.stages; ++s) {
      mbarrier_init(barriers + s * 16, P::kThreads);
      mbarrier_init(barriers + s * 16 + 8, P::kWarps);
    }
  __syncthreads();

  const int warp_row = item.row_first + group * P::kWarpRows;
  {
    const RowContext r = row_context(params, item, warp_row + lane % P::kWarpRows, head);
    const int64_t offset =
        params.q_rows.offset(item.q_first + r.row, r.head) * static_cast<int64_t>(sizeof(typename P::Q));
    copy_rows<typename P::QTile, P::kWarpRows>(shared_address(query), 0, static_cast<const char*>(params.q),
                                               offset, __ballot_sync(~0u, r.row < item.n_q),
                                               params.head_dim * 2);
    cp_async_commit();
    // The ring of 8-bit keys counts cp.async groups itself; the warps of a row group load the same queries.
    if constexpr (P::kEightBit || P::kValueParts > 1) {
      cp_async_wait<0>();
      __syncthreads();
    }
  }
  std::conditional_t<P::kLockstep, ExtendDoubleBuffer<P>, ExtendRing<P>> ring(
      params, item, head, base + P::kSlotsOffset, barriers,
      base + P::kStagingOffset + warp * (P::kStaging * P::kStagingBytes));
  __syncwarp();

  const ExtendScores<P> scores(shared_address(query));
  const uint32_t v_row = P::VTile::offset(lane % 16, part * (P::kPartDv / 8) + lane / 16);
  ExtendState<P> state;
  state.reset();
  // Every row of the warp sees the keys below `unmasked_end`; none sees keys from `visible_end` on.
  const int key_last = item.key_last;
  int unmasked_end = key_last, visible_end = key_last;
  {
    const int shift = item.n_k - item.n_q;
    const int warp_last = min(warp_row + P::kWarpRows, item.n_q * static_cast<int>(params.group.divisor)) - 1;
    if (warp_last < warp_row) visible_end = 0;
    if (!P::kGeneral && params.mask.causal) {
      unmasked_end = min(unmasked_end, params.group.quotient(warp_row) + shift + 1);
      if (warp_last >= warp_row) visible_end = min(visible_end, params.group.quotient(warp_last) + shift + 1);
    }
  }
  const float scale = P::kGeneral ? 1.0f : params.scale * kLog2e;

  for (int key0 = item.key_first; key0 < key_last; key0 += P::kTileKeys) {
    ring.begin();
    if (key0 < visible_end) {
      const bool factors = P::kEightBit && params.kv.k_scales != nullptr;
      float s[P::kRowTiles][P::kTileKeys / 8][4];
      scores(s, ring.keys());
      if (factors) {
#pragma unroll
        for (int n = 0; n < P::kTileKeys / 8; ++n) {
          const float2 f = load_factors(ring.key_factors(), n * 8 + lane % 4 * 2);
#pragma unroll
          for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              s[t][n][i] *= i % 2 == 0 ? f.x : f.y;
        }
      }
      ring.keys_done();
      if constexpr (P::kGeneral) {
        general_scores<P>(s, params, item, warp_row, key0, head);
      } else if (key0 + P::kTileKeys > unmasked_end) {
        mask_last_keys<P>(s, params, item, warp_row, key0);
      }
      state.update_row_max(s, scale);
      const uint32_t v_tile = ring.values();
      extend_pv<P>(state, s, scale, v_tile + v_row, factors ? ring.value_factors() : 0, params.kv.v_gain);
    } else {
      ring.keys_done();
    }
    ring.values_done();
  }
  cp_async_wait_all();  // copies of tiles that no row of this warp needed
  state.finish();
  const ExtendEpilogue<P> epilogue{params, item, head, group * P::kWarpRows, part};
  if (item.num_splits > 1) {
    epilogue.store_partial(state.o, state.row_max, state.row_sum);
  } else {
    if constexpr (P::kValueParts > 1) __syncthreads();  // the warps of the row group have read its queries
    __syncwarp();
    epilogue.store(query, state.o, state.row_max, state.row_sum);
  }
}

}  // namespace fovea::cuda::sm80
