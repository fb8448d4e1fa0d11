#pragma once
// 8-bit keys and values as the query's type.
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda::sm80 {

/// Four 8-bit elements as two registers of T.
template <KvType Type, class T>
__device__ __forceinline__ void widen(uint32_t (&r)[2], uint32_t bytes) {
  if constexpr (Type == KvType::e4m3)
    e4m3x4_to<T>(r, bytes);
  else if constexpr (Type == KvType::e5m2)
    e5m2x4_to<T>(r, bytes);
  else
    int8x4_to<T>(r, bytes);
}

}  // namespace fovea::cuda::sm80
