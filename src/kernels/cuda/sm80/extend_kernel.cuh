#pragma once
// Extend (prefill): tiles of packed query rows against all keys that they see, key tile by key tile from the
// first on. One block makes one item under one KV head.
#include "kernels/cuda/sm80/extend_epilogue.cuh"
#include "kernels/cuda/sm80/extend_mainloop.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::sm80 {

/// The running state of a warp's rows.
template <class P>
struct ExtendState {
  float o[P::kRowTiles][P::kPartDv / 8][4];
  float maximum[P::kRowTiles][2], sum[P::kRowTiles][2];

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
        maximum[t][h] = -INFINITY, sum[t][h] = 0.0f;
    }
  }

  /// Scores of a tile -> probabilities in the same registers, unrounded; O and the sums are brought to the
  /// new maximum.
  __device__ void softmax(float (&s)[P::kRowTiles][P::kTileKeys / 8][4], float scale) {
    // Loops over keys outside, over rows inside: with two warps to a scheduler it takes four rows' chains
    // side by side to hide the latency of an addition.
    float top[P::kRowTiles][2], base[P::kRowTiles][2], f[P::kRowTiles][2], row_sum[P::kRowTiles][2];
#pragma unroll
    for (int n = 0; n < P::kTileKeys / 8; ++n)
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float larger = fmaxf(s[t][n][2 * h], s[t][n][2 * h + 1]);
          top[t][h] = n == 0 ? larger : fmaxf(top[t][h], larger);
        }
#pragma unroll
    for (int step = 1; step <= 2; ++step)
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          top[t][h] = fmaxf(top[t][h], __shfl_xor_sync(~0u, top[t][h], step));
    bool changed = false;
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float new_max = fmaxf(maximum[t][h], top[t][h] * scale);
        base[t][h] = finite_max(new_max);
        f[t][h] = exp2_approx(maximum[t][h] - base[t][h]);
        changed |= f[t][h] != 1.0f;
        maximum[t][h] = new_max;
        row_sum[t][h] = 0.0f;
      }
#pragma unroll
    for (int n = 0; n < P::kTileKeys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            s[t][n][2 * h + e] = exp2_approx(fmaf(s[t][n][2 * h + e], scale, -base[t][h]));
            row_sum[t][h] += s[t][n][2 * h + e];
          }
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        sum[t][h] = fmaf(sum[t][h], f[t][h], row_sum[t][h]);
    // Multiplying by 1 changes nothing, so leaving it out when every row's factor is 1 doesn't either.
    if (__any_sync(~0u, changed)) {
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
        for (int j = 0; j < P::kPartDv / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            o[t][j][i] *= f[t][i / 2];
    }
  }
};

/// Columns of a tile by `gain` and factors of its keys, fp32 in shared memory.
template <int M, int N>
__device__ __forceinline__ void multiply(float (&s)[M][N][4], uint32_t factors, float gain) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
    float x, y;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(x), "=f"(y)
                 : "r"(factors + (n * 8 + threadIdx.x % 4 * 2) * 4)
                 : "memory");
    x *= gain, y *= gain;
#pragma unroll
    for (int t = 0; t < M; ++t)
      s[t][n][0] *= x, s[t][n][1] *= y, s[t][n][2] *= x, s[t][n][3] *= y;
  }
}

template <class P>
__global__ __launch_bounds__(P::kThreads, P::kBlocksPerSm) void extend_kernel(
    const __grid_constant__ AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, q = lane % 4;
  grid_launch_dependents();
  grid_dependency_wait();
  const int index = params.kv_heads.quotient(static_cast<int>(blockIdx.x));
  if (index >= *params.num_items) return;
  const int head = static_cast<int>(blockIdx.x) - index * static_cast<int>(params.kv_heads.divisor);
  const WorkItem item = params.items[index];

  const int group = warp / P::kValueParts, part = warp % P::kValueParts;
  char* const query = shared + group * P::kQueryBytes;
  const uint32_t slots = shared_address(shared) + P::kRowGroups * P::kQueryBytes;
  const uint32_t barriers = slots + P::kSlots * P::kSlotBytes;
  const uint32_t staging = barriers + P::kSlots * 16 + warp * (P::kStaging * P::kStagingBytes);
  if (threadIdx.x == 0)
    for (int s = 0; s < P::kSlots; ++s) {
      mbarrier_init(barriers + s * 16, P::kThreads);
      mbarrier_init(barriers + s * 16 + 8, P::kWarps);
    }
  __syncthreads();

  const int warp_row = item.row_first + group * P::kWarpRows;
  {
    const RowContext r = row_context(params, item, warp_row + lane % P::kWarpRows, head);
    const int64_t offset = (static_cast<int64_t>(item.q_first + r.row) * params.q_row_stride +
                            static_cast<int64_t>(r.head) * params.head_dim) *
                           static_cast<int64_t>(sizeof(typename P::Q));
    copy_rows<typename P::QTile, P::kWarpRows>(shared_address(query), 0, static_cast<const char*>(params.q),
                                               offset, __ballot_sync(~0u, r.row < item.n_q),
                                               params.head_dim * 2);
    cp_async_commit();
    if constexpr (P::kEightBit ||
                  P::kValueParts > 1) {  // groups are the ring's from here on; parts load alike
      cp_async_wait<0>();
      __syncthreads();
    }
  }
  ExtendRing<P> ring(params, item, head, slots, barriers, staging);
#pragma unroll
  for (int n = 0; n < P::kAhead; ++n) {
    if (n % 2 == 0)
      ring.template issue<false>();
    else
      ring.template issue<true>();
  }
  if constexpr (!P::kEightBit) cp_async_wait<0>();  // the query's group; K and V are in none
  __syncwarp();

  const uint32_t q_tile = shared_address(query);
  // See tiles/mma.h for which lane's row of ldmatrix is which fragment.
  const unsigned a_row = lane % 16, a_chunk = lane / 16;
  const unsigned k_row = lane / 16 * 8 + lane % 8, k_chunk = lane / 8 % 2;
  uint32_t held[P::kRowTiles][P::kQueryRegisterSteps > 0 ? P::kQueryRegisterSteps : 1][4];
#pragma unroll
  for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
    for (int k = 0; k < P::kQueryRegisterSteps; ++k)
      ldmatrix_x4(held[t][k], q_tile + P::QTile::offset(t * 16 + a_row, 2 * k + a_chunk));

  ExtendState<P> state;
  state.reset();
  // Keys from `safe` on are not seen by every row of the warp; from `over` on by none.
  const int shift = item.n_k - item.n_q;
  const int warp_last = min(warp_row + P::kWarpRows, item.n_q * static_cast<int>(params.group.divisor)) - 1;
  int safe = item.key_last, over = warp_last < warp_row ? 0 : item.key_last;
  if (!P::kGeneral && params.mask.causal) {
    safe = min(safe, params.group.quotient(warp_row) + shift + 1);
    if (warp_last >= warp_row) over = min(over, params.group.quotient(warp_last) + shift + 1);
  }
  const float scale = P::kGeneral ? 1.0f : params.scale * kLog2e;

  for (int key0 = item.key_first; key0 < item.key_last; key0 += P::kTileKeys) {
    if constexpr (P::kAhead % 2 == 0)
      ring.template issue<false>();
    else
      ring.template issue<true>();
    const bool used = key0 < over;
    float s[P::kRowTiles][P::kTileKeys / 8][4];
    if (used) {
      const uint32_t k_tile = ring.wait();
#pragma unroll
      for (int k = 0; k < P::kD / 16; ++k) {
        uint32_t a[P::kRowTiles][4];
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t) {
          if (k < P::kQueryRegisterSteps) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
              a[t][i] = held[t][k < P::kQueryRegisterSteps ? k : 0][i];
          } else {
            ldmatrix_x4(a[t], q_tile + P::QTile::offset(t * 16 + a_row, 2 * k + a_chunk));
          }
        }
#pragma unroll
        for (int n = 0; n < P::kTileKeys / 16; ++n) {
          uint32_t b[4];
          ldmatrix_x4(b, k_tile + P::KTile::offset(n * 16 + k_row, 2 * k + k_chunk));
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
    if (P::kEightBit && used && params.kv.k_scales != nullptr) multiply(s, ring.scales(), 1.0f);
    ring.release();
    if constexpr (P::kAhead % 2 == 0)
      ring.template issue<true>();
    else
      ring.template issue<false>();
    if (used) {
      if constexpr (P::kGeneral) {
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const RowContext r = row_context(params, item, warp_row + t * 16 + h * 8 + g, head);
#pragma unroll
            for (int i = 0; i < P::kTileKeys / 4; ++i) {
              float& x = s[t][i / 2][2 * h + i % 2];
              const int key = key0 + i / 2 * 8 + 2 * q + i % 2;
              x = key < item.key_last ? general_score(params, item, r, key, x) : -INFINITY;
            }
          }
      } else if (key0 + P::kTileKeys > safe) {
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            int limit = item.key_last;
            if (params.mask.causal)
              limit = min(limit, params.group.quotient(warp_row + t * 16 + h * 8 + g) + shift + 1);
            limit -= key0 + 2 * q;
#pragma unroll
            for (int i = 0; i < P::kTileKeys / 4; ++i)
              if (i / 2 * 8 + i % 2 >= limit) s[t][i / 2][2 * h + i % 2] = -INFINITY;
          }
      }
      state.softmax(s, scale);
      const uint32_t v_tile = ring.wait();
      if (P::kEightBit && params.kv.k_scales != nullptr) multiply(s, ring.scales(), params.kv.v_gain);
#pragma unroll
      for (int n = 0; n < P::kTileKeys / 16; ++n) {
        uint32_t p[P::kRowTiles][4];
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            p[t][i] =
                pack<typename P::Q>(s[t][2 * n + i / 2][2 * (i % 2)], s[t][2 * n + i / 2][2 * (i % 2) + 1]);
#pragma unroll
        for (int j = 0; j < P::kPartDv / 16; ++j) {
          uint32_t b[4];
          ldmatrix_x4_trans(
              b, v_tile + P::VTile::offset(n * 16 + a_row, part * (P::kPartDv / 8) + 2 * j + a_chunk));
#pragma unroll
          for (int t = 0; t < P::kRowTiles; ++t) {
            Mma<typename P::Q>::k16(state.o[t][2 * j], p[t], b[0], b[1]);
            Mma<typename P::Q>::k16(state.o[t][2 * j + 1], p[t], b[2], b[3]);
          }
        }
      }
    }
    ring.release();
  }
  cp_async_wait_all();  // of tiles that no row of this warp needed
  const ExtendEpilogue<P> epilogue{params, item, head, group * P::kWarpRows, part};
  if (item.num_splits > 1) {
    epilogue.part_of_keys(state.o, state.maximum, state.sum);
  } else {
    if constexpr (P::kValueParts > 1) __syncthreads();  // the group's warps have read its queries
    __syncwarp();
    epilogue.output(query, state.o, state.maximum, state.sum);
  }
}

}  // namespace fovea::cuda::sm80
