#pragma once
// The epilogue of the extend kernel: normalises, converts and writes whole rows through shared memory; or
// stores a partial result for the combine kernel.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm80 {

template <class P>
struct ExtendEpilogue {
  const AttentionParams& p;
  const WorkItem& item;
  int head;
  int group_row;  ///< first row of this warp in the tile
  int part;       ///< which part of the columns

  /// `staging`: the query buffer of the row group (kQueryBytes), which its warps no longer read.
  __device__ void store(char* staging, const float (&o)[P::kRowTiles][P::kPartDv / 8][4],
                        const float (&row_max)[P::kRowTiles][2],
                        const float (&row_sum)[P::kRowTiles][2]) const {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int first_row = item.row_first + group_row;
    constexpr int kPartChunks = P::kPartDv / 8;
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = t * 16 + h * 8 + g;
        const RowContext r = row_context(p, item, first_row + row, head);
        const bool exists = r.row < item.n_q;
        const RowEnd end =
            finish_row(row_max[t][h], planted_sum(sum_of(item, quad_sum(row_sum[t][h]))),
                       p.sinks == nullptr || !exists ? nullptr : p.sinks + r.head, p.lse_includes_sink);
        const float f = end.inverse * p.kv.v_scale;
        if (q == 0 && part == 0 && exists && p.lse != nullptr)
          p.lse[static_cast<int64_t>(item.q_first + r.row) * p.kv_heads.divisor * p.group.divisor + r.head] =
              end.lse;
#pragma unroll
        for (int j = 0; j < kPartChunks; ++j)
          *reinterpret_cast<uint32_t*>(staging + P::OTile::offset(row, part * kPartChunks + j) + 4 * q) =
              pack<typename P::Q>(o[t][j][2 * h] * f, o[t][j][2 * h + 1] * f);
      }
    __syncwarp();
    const RowContext r = row_context(p, item, first_row + lane % P::kWarpRows, head);
    const int64_t offset = p.out_rows.offset(item.q_first + r.row, r.head);
    const uint32_t rows = __ballot_sync(~0u, r.row < item.n_q);
    constexpr int kTotal = P::kWarpRows * kPartChunks;
    static_assert(kTotal % 32 == 0);  // so that all lanes take part in the shuffle
#pragma unroll 4
    for (int i = lane; i < kTotal; i += 32) {
      const int row = i / kPartChunks, chunk = part * kPartChunks + i % kPartChunks;
      const int64_t row_offset = __shfl_sync(~0u, offset, row);
      if ((rows >> row & 1) != 0 && chunk * 8 < p.v_head_dim)
        *reinterpret_cast<uint4*>(static_cast<typename P::Q*>(p.out) + row_offset + chunk * 8) =
            *reinterpret_cast<const uint4*>(staging + P::OTile::offset(row, chunk));
    }
  }

  /// Stores the partial result of a split.
  __device__ void store_partial(const float (&o)[P::kRowTiles][P::kPartDv / 8][4],
                                const float (&row_max)[P::kRowTiles][2],
                                const float (&row_sum)[P::kRowTiles][2]) const {
    const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
    const int rows = min(P::kRows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float total = quad_sum(row_sum[t][h]);
        const int row = group_row + t * 16 + h * 8 + g;
        if (row >= rows) continue;
        const int64_t at = partial_row(p, item.partial_first + item.split, head, row);
        if (q == 0 && part == 0) store_state(p, at, row_max[t][h], total);
        float* to = p.partial_out + at * P::kDv + part * P::kPartDv + 2 * q;
#pragma unroll
        for (int j = 0; j < P::kPartDv / 8; ++j)
          __stcg(reinterpret_cast<float2*>(to + 8 * j), make_float2(o[t][j][2 * h], o[t][j][2 * h + 1]));
      }
  }
};

}  // namespace fovea::cuda::sm80
