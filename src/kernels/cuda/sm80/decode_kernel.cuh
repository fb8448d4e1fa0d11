#pragma once
// Decode: up to P::kRows packed query rows of a sequence against its keys, split at absolute multiples of
// P::kSplitKeys. One block takes unit after unit (an item under one KV head).
#include "kernels/cuda/sm80/decode_epilogue.cuh"
#include "kernels/cuda/sm80/decode_mainloop.cuh"
#include "kernels/cuda/tiles/ldmatrix.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda::sm80 {

/// The query fragments of a unit; rows past the sequence are 0.
template <class P>
struct DecodeQuery {
  uint32_t a[P::kRowTiles][P::kD / 16][4];

  __device__ void load(const AttentionParams& p, const WorkItem& item, int head) {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const RowContext r = row_context(p, item, item.row_first + t * 16 + h * 8 + g, head);
        const auto* row = static_cast<const typename P::Q*>(p.q) +
                          static_cast<int64_t>(item.q_first + r.row) * p.q_row_stride +
                          static_cast<int64_t>(r.head) * p.head_dim + 2 * q;
#pragma unroll
        for (int k = 0; k < P::kD / 16; ++k)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const bool valid = r.row < item.n_q && 16 * k + 8 * e + 2 * q < p.head_dim;
            a[t][k][2 * e + h] = valid ? __ldg(reinterpret_cast<const unsigned*>(row + 16 * k + 8 * e)) : 0u;
          }
      }
  }
};

template <class P>
__global__ __launch_bounds__(P::kThreads, P::kBlocksPerSm) void decode_kernel(const __grid_constant__
                                                                               AttentionParams params) {
  extern __shared__ __align__(128) char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, q = lane % 4;
  const int num_units = *params.num_items * static_cast<int>(params.kv_heads.divisor);
  const uint32_t ring = shared_address(shared) + warp * (P::kStages * P::kStageBytes);
  char* const after_ring = shared + P::kRingBytes;
  DecodeEpilogue<P> epilogue{params, reinterpret_cast<float*>(after_ring),
                             reinterpret_cast<float2*>(after_ring + P::kMergeBytes),
                             reinterpret_cast<int*>(after_ring + P::kMergeBytes + P::kStateBytes)};
  DecodeLoader<P> loader(params, ring, num_units);
#pragma unroll
  for (int s = 0; s < P::kStages - 1; ++s)
    loader.step();

  // Where this lane's ldmatrix rows lie; see tiles/mma.h for which matrix is which fragment.
  const unsigned k_row = lane / 16 * 8 + lane % 8, k_chunk = lane / 8 % 2;
  const unsigned v_row = lane % 16, v_chunk = lane / 16;
  const float scale = P::kGeneral ? 1.0f : params.scale * kLog2e;
  int stage = 0;
  for (int unit = static_cast<int>(blockIdx.x); unit < num_units; unit += static_cast<int>(gridDim.x)) {
    const int index = params.kv_heads.quotient(unit);
    const int head = unit - index * static_cast<int>(params.kv_heads.divisor);
    const WorkItem item = params.items[index];
    DecodeQuery<P> query;
    query.load(params, item, head);
    RowContext rows[P::kRowTiles][2];
    int limit[P::kRowTiles][2];  // keys that a row sees: below this
    int safe = item.key_last;    // keys below are seen by every row
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        rows[t][h] = row_context(params, item, item.row_first + t * 16 + h * 8 + g, head);
        limit[t][h] = params.mask.causal ? min(item.key_last, rows[t][h].position + 1) : item.key_last;
      }
    if (params.mask.causal)
      safe = min(safe, params.group.quotient(item.row_first) + item.n_k - item.n_q + 1);

    float o[P::kRowTiles][P::kDv / 8][4] = {};
    float maximum[P::kRowTiles][2], sum[P::kRowTiles][2];
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        maximum[t][h] = -INFINITY, sum[t][h] = 0.0f;

    for (int tile_key = item.key_first; tile_key < item.key_last; tile_key += P::kTileKeys) {
      cp_async_wait<P::kStages - 2>();
      __syncwarp();
      loader.step();
      const uint32_t k_tile = ring + stage * P::kStageBytes;
      const uint32_t v_tile = k_tile + P::kKBytes;
      stage = stage + 1 == P::kStages ? 0 : stage + 1;
      const int key0 = tile_key + warp * P::kWarpKeys;

      float s[P::kRowTiles][2][4] = {};
#pragma unroll
      for (int k = 0; k < P::kD / 16; ++k) {
        uint32_t b[4];
        ldmatrix_x4(b, k_tile + P::KTile::offset(k_row, 2 * k + k_chunk));
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t) {
          Mma<typename P::Q>::k16(s[t][0], query.a[t][k], b[0], b[1]);
          Mma<typename P::Q>::k16(s[t][1], query.a[t][k], b[2], b[3]);
        }
      }
      if constexpr (P::kGeneral) {
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
          for (int i = 0; i < 8; ++i)
            s[t][i / 4][i % 4] = general_score(params, item, rows[t][i / 2 % 2],
                                               key0 + i / 4 * 8 + 2 * q + i % 2, s[t][i / 4][i % 4]);
      } else if (key0 + P::kWarpKeys > safe) {
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (key0 + i / 4 * 8 + 2 * q + i % 2 >= limit[t][i / 2 % 2]) s[t][i / 4][i % 4] = -INFINITY;
      }
      uint32_t p[P::kRowTiles][4];
#pragma unroll
      for (int t = 0; t < P::kRowTiles; ++t) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float top = fmaxf(fmaxf(s[t][0][2 * h], s[t][0][2 * h + 1]), fmaxf(s[t][1][2 * h], s[t][1][2 * h + 1]));
          top = fmaxf(maximum[t][h], quad_max(top) * scale);
          const float base = finite_max(top);
          const float f = exp2_approx(maximum[t][h] - base);
          maximum[t][h] = top;
          sum[t][h] *= f;
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const float p0 = exp2_approx(fmaf(s[t][n][2 * h], scale, -base));
            const float p1 = exp2_approx(fmaf(s[t][n][2 * h + 1], scale, -base));
            sum[t][h] += p0 + p1;
            p[t][2 * n + h] = pack<typename P::Q>(p0, p1);
          }
          if (f != 1.0f) {
#pragma unroll
            for (int j = 0; j < P::kDv / 8; ++j) {
              o[t][j][2 * h] *= f;
              o[t][j][2 * h + 1] *= f;
            }
          }
        }
      }
#pragma unroll
      for (int j = 0; j < P::kDv / 16; ++j) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, v_tile + P::VTile::offset(v_row, 2 * j + v_chunk));
#pragma unroll
        for (int t = 0; t < P::kRowTiles; ++t) {
          Mma<typename P::Q>::k16(o[t][2 * j], p[t], b[0], b[1]);
          Mma<typename P::Q>::k16(o[t][2 * j + 1], p[t], b[2], b[3]);
        }
      }
    }
    epilogue.unit(item, head, o, maximum, sum);
  }
  cp_async_wait<0>();
}

}  // namespace fovea::cuda::sm80
