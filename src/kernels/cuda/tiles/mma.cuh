#pragma once
// mma.sync with fp32 accumulators (sm_80): D = A B + C over one warp. Fragments, g = lane / 4, q = lane % 4:
//   A [16, 16]:  a[0] = (row g; k 2q, 2q+1), a[1] = (g + 8; same k),
//                a[2] = (row g; k 2q+8, +9), a[3] = (g + 8; same k)
//   B [16, 8]:   b0 = (k 2q, 2q+1; column g), b1 = (k 2q+8, +9; column g)
//   C [16, 8]:   c[0], c[1] = (row g; columns 2q, 2q+1), c[2], c[3] = (row g + 8; same columns)
// For k8:        a0 = (row g; k 2q, 2q+1), a1 = (g + 8; same k); b0 = (k 2q, 2q+1; column g)
// The C of 16 keys is the A of a product over those keys, after packing pairs (pack<T> of convert.cuh).
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda {

template <class T>
struct Mma;

template <>
struct Mma<__half> {
  /// m16n8k16 with C = 0: c is written only.
  static FOVEA_DEVICE void k16_first(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }
  /// m16n8k16.
  static FOVEA_DEVICE void k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  /// m16n8k8, for a head size that is an odd multiple of 8.
  static FOVEA_DEVICE void k8(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
  }
};

template <>
struct Mma<__nv_bfloat16> {
  /// m16n8k16 with C = 0: c is written only.
  static FOVEA_DEVICE void k16_first(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
  }
  /// m16n8k16.
  static FOVEA_DEVICE void k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  /// m16n8k8, for a head size that is an odd multiple of 8.
  static FOVEA_DEVICE void k8(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
  }
};

}  // namespace fovea::cuda
