#pragma once
// The end of a row tile of the extend kernel: normalise, convert, and write whole rows through shared memory.
#include "kernels/cuda/sm80/mask.cuh"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda::sm80 {

/// `staging`: this warp's part of shared memory, kQueryBytes.
template <class P>
__device__ void extend_epilogue(const AttentionParams& p, const WorkItem& item, int head, int warp_row, char* staging,
                                const float (&o)[P::kRowTiles][P::kDv / 8][4],
                                const float (&maximum)[P::kRowTiles][2], const float (&sum)[P::kRowTiles][2]) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  __syncwarp();
#pragma unroll
  for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = t * 16 + h * 8 + g;
      const RowContext r = row_context(p, item, warp_row + row, head);
      const bool exists = r.row < item.n_q;
      const RowEnd end = finish_row(maximum[t][h], quad_sum(sum[t][h]),
                                    p.sinks == nullptr || !exists ? nullptr : p.sinks + r.head, p.lse_includes_sink);
      const float f = end.inverse * p.kv.v_scale;
      if (q == 0 && exists && p.lse != nullptr)
        p.lse[static_cast<int64_t>(item.q_first + r.row) * p.kv_heads.divisor * p.group.divisor + r.head] = end.lse;
#pragma unroll
      for (int j = 0; j < P::kDv / 8; ++j)
        *reinterpret_cast<uint32_t*>(staging + P::OTile::offset(row, j) + 4 * q) =
            pack<typename P::Q>(o[t][j][2 * h] * f, o[t][j][2 * h + 1] * f);
    }
  __syncwarp();
  const RowContext r = row_context(p, item, warp_row + lane % P::kWarpRows, head);
  const int64_t offset = static_cast<int64_t>(item.q_first + r.row) * p.out_row_stride +
                         static_cast<int64_t>(r.head) * p.v_head_dim;
  const uint32_t rows = __ballot_sync(~0u, r.row < item.n_q);
  constexpr int kTotal = P::kWarpRows * P::OTile::kChunks;
#pragma unroll 4
  for (int i = lane; i < kTotal; i += 32) {  // a multiple of 32, so all lanes stay together
    const int row = i / P::OTile::kChunks, chunk = i % P::OTile::kChunks;
    const int64_t row_offset = __shfl_sync(~0u, offset, row);
    if ((rows >> row & 1) != 0 && chunk * 8 < p.v_head_dim)
      *reinterpret_cast<uint4*>(static_cast<typename P::Q*>(p.out) + row_offset + chunk * 8) =
          *reinterpret_cast<const uint4*>(staging + P::OTile::offset(row, chunk));
  }
}

}  // namespace fovea::cuda::sm80
