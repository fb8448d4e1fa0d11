#pragma once
// A block of codes in a lane's registers, widened to A fragments of m16n8k16 (and of wgmma, whose warps hold
// 16 rows alike). The values are exact in T.
#include <cstdint>

#include "kernels/cuda/codes/code_layout.h"
#include "kernels/cuda/tiles/common.cuh"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda {

/// mul_bf16x2() at its place among the instructions around it: between dependent matrix products, which it
/// hides.
FOVEA_DEVICE uint32_t mul_in_place(uint32_t a, uint32_t b) {
  uint32_t r;
#if __CUDA_ARCH__ >= 900
  asm volatile("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
#else
  asm volatile("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
  return r;
}

FOVEA_DEVICE uint4 load_shared_16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
FOVEA_DEVICE uint32_t load_shared_4(uint32_t from) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}

FOVEA_DEVICE void store_shared_4(uint32_t to, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

/// A word of code_layout.h's four e4m3 codes of an output as bf16: e4m3's bits at bf16's places are the value
/// times 2^-120.
struct E4m3Pairs {
  uint32_t low;   ///< inputs 2 q, 2 q + 1
  uint32_t high;  ///< inputs 2 q + 8, 2 q + 9
};
FOVEA_DEVICE E4m3Pairs widen_e4m3(uint32_t w) {
  return {mul_bf16x2((w & 0x80008000u) | ((w >> 4) & 0x07f007f0u), 0x7b807b80u),
          mul_bf16x2(((w << 8) & 0x80008000u) | ((w << 4) & 0x07f007f0u), 0x7b807b80u)};
}

/// Blocks of 64 inputs x 16 outputs. `block`: where the block begins.
template <WeightCode kCode>
struct CodeBlock;

template <>
struct CodeBlock<WeightCode::mxfp4> {
  static constexpr int kBytes = code_block_bytes(WeightCode::mxfp4);
  uint4 codes;
  uint32_t scales;

  FOVEA_DEVICE void load_shared(uint32_t block) {
    codes = load_shared_16(block + static_cast<uint32_t>(lane_id()) * 16);
    scales = load_shared_4(block + kMxfp4ScaleOffset + static_cast<uint32_t>(lane_id() / 4) * 4);
  }

  /// Whether widen<false>() cannot be used.
  FOVEA_DEVICE bool large() const { return (scales & 0x80808080u) != 0; }

  /// bf16. e2m1's bits at bf16's places are the value times 2^-126 (e2m1's subnormals are bf16's), so that
  /// the factor is 2^(scale - 127 + 126). From scale 129 on, values of 2 and more, it takes two factors:
  /// kAny.
  template <bool kAny = true>
  FOVEA_DEVICE void widen(uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      widen_part<kAny>(a, i);
  }
  /// A quarter of the block, part 0 to 3.
  template <bool kAny>
  FOVEA_DEVICE void widen_part(uint32_t (&a)[4][4], int i) const {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    const uint32_t scale = byte_of(scales, i), first = kAny ? min(scale, 128u) : scale;
    const uint32_t factor = first * 0x00800080u + 126u * 0x00800080u;
    const uint32_t more = (scale - first + 127u) * 0x00800080u;
    uint32_t v[4];
    spread(words[i], v);
    const int step = i / 2 * 2, high = i % 2;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t product = mul_in_place(v[j], factor);
      a[step + j / 2][high + j % 2 * 2] = kAny ? mul_in_place(product, more) : product;
    }
  }

 private:
  static FOVEA_DEVICE uint32_t byte_of(uint32_t word, int i) {
    return __byte_perm(word, 0, 0x4440u + static_cast<uint32_t>(i));
  }
  /// Values 0 to 3 of both halves.
  static FOVEA_DEVICE void spread(uint32_t w, uint32_t (&v)[4]) {
    constexpr uint32_t kMask = 0x81c081c0u;
    v[0] = w & kMask;
    v[1] = (w << 3) & kMask;
    v[2] = (w << 6) & kMask;
    v[3] = ((w << 1) & 0x80008000u) | ((w >> 3) & 0x01800180u) | ((w >> 7) & 0x00400040u);
  }
};

template <>
struct CodeBlock<WeightCode::e4m3> {
  static constexpr int kBytes = code_block_bytes(WeightCode::e4m3);
  uint4 codes[2];

  FOVEA_DEVICE void load_shared(uint32_t block) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      codes[i] = load_shared_16(block + static_cast<uint32_t>(i * 512 + lane_id() * 16));
  }

  FOVEA_DEVICE bool large() const { return false; }

  /// bf16: e4m3's bits at bf16's places are the value times 2^-120.
  template <bool kAny = true>
  FOVEA_DEVICE void widen(uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      widen_part<kAny>(a, i);
  }
  /// k16 step `step`.
  template <bool kAny>
  FOVEA_DEVICE void widen_part(uint32_t (&a)[4][4], int step) const {
    const uint4 half = codes[step / 2];
    const uint32_t words[2] = {step % 2 == 0 ? half.x : half.z, step % 2 == 0 ? half.y : half.w};
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const uint32_t w = words[high];
      a[step][high] = mul_in_place((w & 0x80008000u) | ((w & 0x7f007f00u) >> 4), 0x7b807b80u);
      a[step][high + 2] = mul_in_place(((w << 8) & 0x80008000u) | ((w << 4) & 0x07f007f0u), 0x7b807b80u);
    }
  }
};

}  // namespace fovea::cuda
