#pragma once
// Matrix products of a warpgroup, 4 converged warps (sm_90a): order, descriptors; Wgmma<T, N> is in
// wgmma_shapes.cuh. Thread t of the warpgroup, w = t / 32, g = t % 32 / 4, q = t % 4:
//   accumulator d[i]: row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2 q + i % 2
//   A from registers a[r]: row 16 w + g + 8 (r % 2), k 8 (r / 2) + 2 q and + 1; the accumulators of 16
//   columns 16 j to 16 j + 15 are the A of k slice j: a[r] = pack(d[8 j + 2 r], d[8 j + 2 r + 1]).
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// Swizzle span of an operand's tile in shared memory, as the descriptor encodes it.
enum class TileSwizzle : uint32_t { none = 0, span_128 = 1, span_64 = 2, span_32 = 3 };

/// A shared-memory operand. Swizzled K-major tiles (rows of span bytes, K contiguous): `stride` = 8 * span,
/// `leading` ignored; swizzled MN-major tiles ([k][span bytes]): `stride` = 8 * span, `leading` = bytes
/// between panels.
__host__ __device__ constexpr uint64_t wgmma_descriptor(uint32_t address, uint32_t leading, uint32_t stride,
                                                        TileSwizzle swizzle) {
  return static_cast<uint64_t>((address >> 4) & 0x3fffu) |
         static_cast<uint64_t>((leading >> 4) & 0x3fffu) << 16 |
         static_cast<uint64_t>((stride >> 4) & 0x3fffu) << 32 | static_cast<uint64_t>(swizzle) << 62;
}

/// The descriptor of an operand `bytes` further on: the next k slice or panel.
__host__ __device__ constexpr uint64_t wgmma_advance(uint64_t descriptor, uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/// Before a batch whose accumulators or A registers an ordinary instruction touched.
FOVEA_DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/// Ends a batch.
FOVEA_DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Waits for all but the newest kPending batches.
template <int kPending>
FOVEA_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// After a wait, on each accumulator: no read of it moves above.
template <int kCount>
FOVEA_DEVICE void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+f"(d[i])::"memory");
}

/// Registers a thread of this warpgroup may use from here on: a multiple of 8, 24 to 240. Needs
/// __launch_bounds__(n, 1).
template <int kCount>
FOVEA_DEVICE void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
FOVEA_DEVICE void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

}  // namespace fovea::cuda
