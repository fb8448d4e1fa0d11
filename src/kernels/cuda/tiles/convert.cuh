#pragma once
// Conversions between fp32, the 16-bit types of the tensor cores and the 8-bit types of the KV cache, two
// elements or four at a time; element 0 is in the low bits. From 8 bits to 16 all are exact (an fp8 NaN
// becomes some NaN), so that a layer's scale can be applied to scores and outputs instead.
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

/// Two fp32 rounded to nearest even and packed.
template <class T>
FOVEA_DEVICE uint32_t pack(float low, float high);
template <>
FOVEA_DEVICE uint32_t pack<__half>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
FOVEA_DEVICE uint32_t pack<__nv_bfloat16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

/// The two elements of a packed register as fp32.
template <class T>
FOVEA_DEVICE float2 unpack(uint32_t packed);
template <>
FOVEA_DEVICE float2 unpack<__half>(uint32_t packed) {
  return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}
template <>
FOVEA_DEVICE float2 unpack<__nv_bfloat16>(uint32_t packed) {
  return {__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u)};
}

/// a * b in each half, rounded once.
FOVEA_DEVICE uint32_t mul_bf16x2(uint32_t a, uint32_t b) {
  uint32_t r;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#else  // sm_80 has only the fused form; -0 is the addend that keeps the sign of a zero
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
  return r;
}
FOVEA_DEVICE uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  uint32_t r;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

/// Four e4m3 (byte i = element i) as two registers of T: r[0] elements 0, 1; r[1] elements 2, 3.
template <class T>
FOVEA_DEVICE void e4m3x4_to(uint32_t (&r)[2], uint32_t bytes);
/// Four e5m2, likewise.
template <class T>
FOVEA_DEVICE void e5m2x4_to(uint32_t (&r)[2], uint32_t bytes);

template <>
FOVEA_DEVICE void e4m3x4_to<__half>(uint32_t (&r)[2], uint32_t bytes) {
#if __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 "
      "%1, high;\n}"
      : "=r"(r[0]), "=r"(r[1])
      : "r"(bytes));
#else
  // Sign, exponent and mantissa moved to fp16's places give the value times 2^(7 - 15); NaN needs its
  // exponent filled.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t pair =
        __byte_perm(bytes, 0, i == 0 ? 0x1404 : 0x3424);  // each byte in the high half of 16 bits
    const uint32_t magnitude = pair & 0x7f007f00u;
    r[i] = mul_f16x2((pair & 0x80008000u) | (magnitude >> 1), 0x5c005c00u);  // 2^8
    const uint32_t nan = __vcmpeq2(magnitude, 0x7f007f00u);
    r[i] |= nan & 0x7e007e00u;
  }
#endif
}

template <>
FOVEA_DEVICE void e4m3x4_to<__nv_bfloat16>(uint32_t (&r)[2], uint32_t bytes) {
  // Likewise; bf16's exponent bias is 127, e4m3's 7.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t pair = __byte_perm(bytes, 0, i == 0 ? 0x1404 : 0x3424);
    const uint32_t magnitude = pair & 0x7f007f00u;
    r[i] = mul_bf16x2((pair & 0x80008000u) | (magnitude >> 4), 0x7b807b80u);  // 2^120
    const uint32_t nan = __vcmpeq2(magnitude, 0x7f007f00u);
    r[i] |= nan & 0x7fc07fc0u;
  }
}

template <>
FOVEA_DEVICE void e5m2x4_to<__half>(uint32_t (&r)[2], uint32_t bytes) {
  r[0] = __byte_perm(bytes, 0, 0x1404);  // e5m2 is the high byte of an fp16
  r[1] = __byte_perm(bytes, 0, 0x3424);
}

template <>
FOVEA_DEVICE void e5m2x4_to<__nv_bfloat16>(uint32_t (&r)[2], uint32_t bytes) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t pair = __byte_perm(bytes, 0, i == 0 ? 0x1404 : 0x3424);
    const uint32_t magnitude = pair & 0x7f007f00u;
    r[i] = mul_bf16x2((pair & 0x80008000u) | (magnitude >> 3), 0x77807780u);  // 2^112 = 2^(127 - 15)
    const uint32_t special = __vcmpgeu2(magnitude, 0x7c007c00u);  // infinity and NaN: exponent filled
    r[i] |= special & 0x7f807f80u;
  }
}

/// Four int8 as fp32, exact: in the mantissa of 2^23 + 128 + x (x biased to unsigned), which one subtraction
/// clears.
FOVEA_DEVICE void int8x4_to_float(float (&r)[4], uint32_t bytes) {
  const uint32_t biased = bytes ^ 0x80808080u;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    r[i] = __uint_as_float(__byte_perm(biased, 0x4b000000u, 0x7440u + static_cast<uint32_t>(i))) - 8388736.0f;
}

/// Four int8 as two registers of T, exact.
template <class T>
FOVEA_DEVICE void int8x4_to(uint32_t (&r)[2], uint32_t bytes) {
  float x[4];
  int8x4_to_float(x, bytes);
  r[0] = pack<T>(x[0], x[1]);
  r[1] = pack<T>(x[2], x[3]);
}

}  // namespace fovea::cuda
