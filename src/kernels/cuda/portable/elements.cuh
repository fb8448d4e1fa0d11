#pragma once
// Converts stored elements of any type, four or eight at a time, to the type of the products, and stores rows
// of the output.
#include "kernels/cuda/common/widen.cuh"
#include "kernels/cuda/portable/access.h"
#include "kernels/cuda/portable/policy.h"

namespace fovea::cuda::portable {

FOVEA_DEVICE KvType stored_query(QueryType q) {
  return q == QueryType::f16 ? KvType::f16 : q == QueryType::bf16 ? KvType::bf16 : KvType::f32;
}

/// 16 bytes of shared memory: P::kChunk elements.
struct alignas(16) Chunk {
  uint32_t word[4];
};

FOVEA_DEVICE void store_shared(uint32_t to, const Chunk& u) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(u.word[0]), "r"(u.word[1]),
               "r"(u.word[2]), "r"(u.word[3])
               : "memory");
}
FOVEA_DEVICE float4 load_shared4(uint32_t from) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(from)
               : "memory");
  return x;
}

/// Reads `count` elements of `bytes` bytes (1 or 2; 4 where a chunk has four elements), `stride` bytes apart;
/// zeros after them.
template <int kChunk>
FOVEA_DEVICE Chunk read_scalar(const char* from, int64_t stride, int bytes, int count) {
  Chunk u{};
  if (kChunk == 4 && bytes == 4) {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (e < count) u.word[e] = __ldg(reinterpret_cast<const uint32_t*>(from + e * stride));
  } else if (bytes == 1) {
#pragma unroll
    for (int e = 0; e < kChunk; ++e)
      if (e < count)
        u.word[e / 4] |= static_cast<uint32_t>(__ldg(reinterpret_cast<const uint8_t*>(from + e * stride)))
                         << (e % 4 * 8);
  } else {
#pragma unroll
    for (int e = 0; e < kChunk; ++e)
      if (e < count)
        u.word[e / 2] |= static_cast<uint32_t>(__ldg(reinterpret_cast<const uint16_t*>(from + e * stride)))
                         << (e % 2 * 16);
  }
  return u;
}

/// Converts a chunk as read to type C; exact, because 8-bit types fit both 16-bit types and all types fit
/// fp32.
template <class C>
FOVEA_DEVICE Chunk convert(KvType type, const Chunk& raw) {
  Chunk to = raw;
  uint32_t low[2], high[2];
  if constexpr (!std::is_same_v<C, float>) {
    if (kv_bytes(type) != 1) return to;
    if (type == KvType::e4m3) {
      widen<KvType::e4m3, C>(low, raw.word[0]);
      widen<KvType::e4m3, C>(high, raw.word[1]);
    } else if (type == KvType::e5m2) {
      widen<KvType::e5m2, C>(low, raw.word[0]);
      widen<KvType::e5m2, C>(high, raw.word[1]);
    } else {
      widen<KvType::int8, C>(low, raw.word[0]);
      widen<KvType::int8, C>(high, raw.word[1]);
    }
    to.word[0] = low[0], to.word[1] = low[1], to.word[2] = high[0], to.word[3] = high[1];
  } else {
    if (type == KvType::f32) return to;
    if (type == KvType::int8) {
      float x[4];
      int8x4_to_float(x, raw.word[0]);
#pragma unroll
      for (int e = 0; e < 4; ++e)
        to.word[e] = __float_as_uint(x[e]);
      return to;
    }
    low[0] = raw.word[0], low[1] = raw.word[1];
    if (type == KvType::e4m3) widen<KvType::e4m3, __half>(low, raw.word[0]);
    if (type == KvType::e5m2) widen<KvType::e5m2, __half>(low, raw.word[0]);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 x = type == KvType::bf16 ? unpack<__nv_bfloat16>(low[h]) : unpack<__half>(low[h]);
      to.word[2 * h] = __float_as_uint(x.x), to.word[2 * h + 1] = __float_as_uint(x.y);
    }
  }
  return to;
}

/// Stores consecutive columns of a row of the output, from `column` on; those past Dv are skipped.
template <int kCount>
FOVEA_DEVICE void store_row(const AttentionParams& p, const Access& access, int q_row, int head, int column,
                            const float (&x)[kCount]) {
  const int64_t at = p.out_rows.offset(q_row, head) + column;
  const int count = min(kCount, p.v_head_dim - column);
  if (access.q == QueryType::f32) {
    float* out = static_cast<float*>(p.out) + at;
    if (kCount == 4 && access.wide_out && count == kCount) {
      *reinterpret_cast<float4*>(out) = make_float4(x[0], x[1], x[kCount - 2], x[kCount - 1]);
      return;
    }
#pragma unroll
    for (int e = 0; e < kCount; ++e)
      if (e < count) out[e] = x[e];
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(p.out) + at;
  uint32_t packed[kCount / 2];
#pragma unroll
  for (int e = 0; e < kCount; e += 2)
    packed[e / 2] =
        access.q == QueryType::f16 ? pack<__half>(x[e], x[e + 1]) : pack<__nv_bfloat16>(x[e], x[e + 1]);
  if (access.wide_out && count == kCount) {
    if constexpr (kCount == 4)
      *reinterpret_cast<uint2*>(out) = make_uint2(packed[0], packed[1]);
    else
      *reinterpret_cast<uint32_t*>(out) = packed[0];
    return;
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e)
    if (e < count) out[e] = static_cast<uint16_t>(packed[e / 2] >> (e % 2 * 16));
}

}  // namespace fovea::cuda::portable
