#pragma once
// Which units a persistent block takes.
#include <cstdint>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm80 {

/// A block's units in order: the first two by its number, then whichever nobody has yet, as SMs far from
/// memory are slower than others by several per cent. Without a counter every gridDim.x-th. A unit's bits
/// don't depend on who takes it.
///
/// Warps are at different places of the sequence: who comes first to a unit claims the one after it, which
/// has then arrived when it is wanted. A slot is free again after its unit, and warps are never kSlots - 2
/// units apart.
struct UnitQueue {
  static constexpr int kSlots = 16;
  enum : int { kFree = -1, kClaimed = -2 };

  const AttentionParams& params;
  int32_t* const counter;  ///< AttentionParams::queue, or null
  int* const slots;        ///< shared [kSlots], kFree at first
  const int num_units;

  __device__ int by_number(int n) const {
    return static_cast<int>(blockIdx.x) + n * static_cast<int>(gridDim.x);
  }

  /// The n-th; num_units or more = none. claim(n) must have been called by someone.
  __device__ int at(int n) const {
    if (n < 2 || counter == nullptr) return by_number(n);
    const volatile int* slot = slots + n % kSlots;
    int unit;
    do
      unit = *slot;
    while (unit < 0);
    return unit;
  }

  /// By whole warps.
  __device__ void claim(int n) const {
    if (threadIdx.x % 32 != 0) return;
    int unit = by_number(n);
    if (n >= 2 && counter != nullptr) {
      int* const slot = slots + n % kSlots;
      if (atomicCAS(slot, kFree, kClaimed) != kFree) return;
      unit = 2 * static_cast<int>(gridDim.x) + atomicAdd(counter, 1);
      *const_cast<volatile int*>(slot) = unit;
    }
    if (unit < num_units) prefetch_l1(params.items + params.kv_heads.quotient(unit));
  }

  /// After a barrier behind the n-th unit.
  __device__ void release(int n) const {
    if (threadIdx.x == 0) slots[n % kSlots] = kFree;
  }
};

}  // namespace fovea::cuda::sm80
