#pragma once
// Conversion of 8-bit keys and values to the query's type.
#include <type_traits>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda {

/// Four int8 as fp16: in the mantissa of 1024 + 128 + x, which one subtraction clears; exact.
__device__ __forceinline__ void int8x4_to_half(uint32_t (&r)[2], uint32_t bytes) {
  const uint32_t biased = bytes ^ 0x80808080u;
  r[0] = __byte_perm(biased, 0x64646464u, 0x4140);
  r[1] = __byte_perm(biased, 0x64646464u, 0x4342);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(r[i]) : "r"(0x64806480u));
}

/// Four 8-bit elements as two registers of T.
template <KvType Type, class T>
__device__ __forceinline__ void widen(uint32_t (&r)[2], uint32_t bytes) {
  if constexpr (Type == KvType::e4m3)
    e4m3x4_to<T>(r, bytes);
  else if constexpr (Type == KvType::e5m2)
    e5m2x4_to<T>(r, bytes);
  else if constexpr (std::is_same_v<T, __half>)
    int8x4_to_half(r, bytes);
  else
    int8x4_to<T>(r, bytes);
}

}  // namespace fovea::cuda
