#pragma once
// Copies of the rows of a tile from global to shared memory, by one warp.
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm80 {

/// Copies rows first_row, ... of a tile from `base` + `offset`: lane r holds the offset of row r < Rows. Bit
/// r of `rows` is set if row r exists. Other rows, and what lies past `row_bytes`, are filled with zeros.
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

/// Copies whole rows at a uniform stride of `stride` bytes, the first from `from`.
template <class Tile, int Rows>
__device__ __forceinline__ void copy_strided_rows(uint32_t tile, int first_row, const char* from,
                                                  int64_t stride) {
  constexpr int kTotal = Rows * Tile::kChunks;
  const int lane = threadIdx.x % 32;
  if constexpr (32 % Tile::kChunks == 0) {
    // Each copy takes the next kRowsAtOnce rows.
    constexpr int kRowsAtOnce = 32 / Tile::kChunks;
    const int row = lane / Tile::kChunks, chunk = lane % Tile::kChunks;
    from += row * stride + chunk * 16;
#pragma unroll
    for (int i = 0; i < Rows; i += kRowsAtOnce) {
      if (Rows % kRowsAtOnce == 0 || i + row < Rows)
        cp_async_16(tile + Tile::offset(first_row + i + row, chunk), from);
      from += kRowsAtOnce * stride;
    }
  } else {
#pragma unroll
    for (int i = 0; i < (kTotal + 31) / 32; ++i) {
      const int index = i * 32 + lane, row = index / Tile::kChunks, chunk = index % Tile::kChunks;
      if (kTotal % 32 == 0 || index < kTotal)
        cp_async_16(tile + Tile::offset(first_row + row, chunk), from + row * stride + chunk * 16);
    }
  }
}

}  // namespace fovea::cuda::sm80
