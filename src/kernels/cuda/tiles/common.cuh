#pragma once
// Shared by all wrappers of this folder. Each wrapper is one PTX instruction in a function: none allocates,
// keeps state or selects a variant. Shared-memory addresses are 32-bit (shared_address); shapes and lanes are
// named as in the PTX manual: g = lane / 4, q = lane % 4.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#define FOVEA_DEVICE __device__ __forceinline__

namespace fovea::cuda {

/// The address in the shared window for a generic pointer to shared memory.
FOVEA_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// 0 to 31.
FOVEA_DEVICE int lane_id() {
  return static_cast<int>(threadIdx.x) & 31;
}

/// 2^x, relative error 2^-22; 2^-inf = 0. Results below 2^-126 are 0.
FOVEA_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// log2(x), absolute error 2^-22; log2(0) = -inf.
FOVEA_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// tanh(x), relative error 2^-11: for soft caps of 16-bit results.
FOVEA_DEVICE float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The largest of the values that the 4 lanes of a row (a quad) hold: an accumulator row of mma.sync and
/// wgmma.
FOVEA_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// Their sum, (x0 + x1) + (x2 + x3) in every lane.
FOVEA_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

}  // namespace fovea::cuda
