#pragma once
// What the kernels of chunks with wgmma (sm_90a) share: two warpgroups have 64 columns of v each, their state
// transposed in registers; a third computes what does not need the state one chunk ahead. One CTA per SM.
#include "kernels/cuda/linear_attention/chunked_kernel.cuh"
#include "kernels/cuda/tiles/tma.cuh"
#include "kernels/cuda/tiles/wgmma_shapes.cuh"

namespace fovea::cuda::chunked {

// Tiles that wgmma reads are panels of 64 columns; a matrix is one panel.
constexpr int kRowBytes = 128, kPanelBytes = kChunk * kRowBytes;

constexpr int kAheadThreads = 128, kAllThreads = kThreads + kAheadThreads;

/// A barrier of the warpgroup that is ahead.
FOVEA_DEVICE void sync_ahead() {
  asm volatile("bar.sync 1, 128;" ::: "memory");
}

/// The warp of the CTA; opaque, or what follows from it is kept in registers.
FOVEA_DEVICE int warp_here() {
  return opaque(static_cast<int>(threadIdx.x)) / 32;
}

/// A tile whose rows are an operand's rows, 16 columns at a time; and one whose columns are.
FOVEA_DEVICE uint64_t tile_rows(uint32_t tile) {
  return wgmma_descriptor(tile, 16, 1024, TileSwizzle::span_128);
}
FOVEA_DEVICE uint64_t tile_columns(uint32_t tile) {
  return wgmma_descriptor(tile, kPanelBytes, 1024, TileSwizzle::span_128);
}
/// The 16 columns from 16 * step of tile_rows().
FOVEA_DEVICE uint64_t next_columns(uint64_t tile, int step) {
  return wgmma_advance(tile, static_cast<uint32_t>(step / 4 * kPanelBytes + step % 4 * 32));
}

template <class T>
FOVEA_DEVICE void pack_state(uint32_t (&a)[kDim / 16][4], const float (&s)[kDim / 2]) {
#pragma unroll
  for (int i = 0; i < kDim / 4; ++i)
    a[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}

/// Products of all rows of a tile with those of another one.
template <class T>
FOVEA_DEVICE void multiply_rows(float (&m)[kChunk / 2], uint32_t rows, uint32_t columns) {
  wgmma_fence();
#pragma unroll
  for (int d = 0; d < kDim / 16; ++d)
    Wgmma<T, kChunk>::template ss<false, false>(m, next_columns(tile_rows(rows), d),
                                                next_columns(tile_rows(columns), d), d > 0);
  wgmma_commit();
}

}  // namespace fovea::cuda::chunked
