#pragma once
// Rows of a tile from anywhere in global memory into shared memory, by one warp.
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm80 {

/// Rows first_row, ... of a tile from `base` + each lane's `offset`: lane r has that of row r < Rows; bits of
/// `rows` say which exist, the others become 0, like what is past `row_bytes`.
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

}  // namespace fovea::cuda::sm80
