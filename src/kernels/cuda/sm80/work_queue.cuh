#pragma once
// The dynamic scheduler of the persistent decode kernel: which work tiles a CTA takes.
#include <cstdint>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm80 {

/// The work tiles of a CTA in order. The first two are assigned statically by its block index; the others are
/// fetched dynamically from an atomic counter, because SMs far from memory are slower than others by several
/// per cent. Without a counter all are assigned by stride: every gridDim.x-th. The bits of a work tile do not
/// depend on the CTA that computes it.
///
/// The warps of a CTA are at different positions of the sequence: the first warp that reaches a work tile
/// claims the one after it, whose index has then arrived before it is needed. A slot is free again after its
/// work tile, and warps are never kSlots - 2 work tiles apart.
struct WorkQueue {
  static constexpr int kSlots = 16;
  enum : int { kFree = -1, kClaimed = -2 };

  const AttentionParams& params;
  int32_t* const counter;  ///< AttentionParams::queue, or null
  int* const slots;        ///< shared [kSlots], kFree at first
  const int num_work_tiles;

  __device__ int by_stride(int n) const {
    return static_cast<int>(blockIdx.x) + n * static_cast<int>(gridDim.x);
  }

  /// The index of the n-th work tile; num_work_tiles or more = none. A warp of the CTA must have called
  /// claim(n).
  __device__ int at(int n) const {
    if (n < 2 || counter == nullptr) return by_stride(n);
    const volatile int* slot = slots + n % kSlots;
    int work_index;
    do
      work_index = *slot;
    while (work_index < 0);
    return work_index;
  }

  /// Fetches the index of the n-th work tile, unless another warp has, and prefetches its WorkItem. Called by
  /// whole warps.
  __device__ void claim(int n) const {
    if (threadIdx.x % 32 != 0) return;
    int work_index = by_stride(n);
    if (n >= 2 && counter != nullptr) {
      int* const slot = slots + n % kSlots;
      if (atomicCAS(slot, kFree, kClaimed) != kFree) return;
      work_index = 2 * static_cast<int>(gridDim.x) + atomicAdd(counter, 1);
      *const_cast<volatile int*>(slot) = work_index;
    }
    if (work_index < num_work_tiles) prefetch_l1(params.items + params.kv_heads.quotient(work_index));
  }

  /// Frees the slot of the n-th work tile, after a barrier that all warps reach when they have finished it.
  __device__ void release(int n) const {
    if (threadIdx.x == 0) slots[n % kSlots] = kFree;
  }
};

}  // namespace fovea::cuda::sm80
