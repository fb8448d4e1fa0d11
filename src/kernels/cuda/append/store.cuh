#pragma once
// Elements of the KV cache on the device: converted as base/float16.h and base/float8.h define.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/float16.h"
#include "base/float8.h"
#include "fovea/attention_step.h"
#include "kernels/cache/stored_value.h"

namespace fovea::cuda {

__device__ inline float to_float(float x) {
  return x;
}
/// A NaN keeps its sign and payload, as on the CPU; the instruction gives one NaN for all.
__device__ inline float to_float(__half x) {
  const float wide = __half2float(x);
  return wide == wide ? wide : fp16_to_float(__half_as_ushort(x));
}
__device__ inline float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

/// x / scale; a NaN keeps its sign, which a division on this device would drop.
__device__ inline float divided(float x, float scale) {
  return x != x ? x : __fdiv_rn(x, scale);
}

/// The bits of one stored element, in the low bytes.
__device__ inline uint32_t stored_bits(float x, float scale, KvCacheDType dtype) {
  switch (dtype) {
    case KvCacheDType::float32: return __float_as_uint(x);
    case KvCacheDType::float16: return float_to_fp16(x);
    case KvCacheDType::bfloat16: return float_to_bf16(x);
    case KvCacheDType::fp8_e4m3: return float_to_e4m3(divided(x, scale));
    case KvCacheDType::fp8_e5m2: return float_to_e5m2(divided(x, scale));
    default:  // int8_per_token_head
      return static_cast<uint8_t>(__float2int_rn(fmaxf(-127.0f, fminf(127.0f, __fdiv_rn(x, scale)))));
  }
}

__device__ inline void store_element(void* data, int64_t at, KvCacheDType dtype, uint32_t bits) {
  switch (size_of(dtype)) {
    case 4: static_cast<uint32_t*>(data)[at] = bits; return;
    case 2: static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(bits); return;
    default: static_cast<uint8_t*>(data)[at] = static_cast<uint8_t>(bits);
  }
}

/// Four neighbouring elements; `at` is a multiple of 4 and the array aligned to four of them.
__device__ inline void store_four(void* data, int64_t at, KvCacheDType dtype, const uint32_t (&bits)[4]) {
  switch (size_of(dtype)) {
    case 4: static_cast<uint4*>(data)[at / 4] = {bits[0], bits[1], bits[2], bits[3]}; return;
    case 2: static_cast<uint2*>(data)[at / 4] = {bits[0] | bits[1] << 16, bits[2] | bits[3] << 16}; return;
    default: static_cast<uint32_t*>(data)[at / 4] = bits[0] | bits[1] << 8 | bits[2] << 16 | bits[3] << 24;
  }
}

/// The first element of K or V of one (page, head, slot), and the strides to the others.
struct RowPlace {
  int64_t at = 0;          ///< element 0
  int run = 0;             ///< elements that are contiguous
  int64_t run_stride = 0;  ///< between runs
  int64_t scale_at = 0;    ///< of the token's scale

  __device__ int64_t element(int d) const { return d < run ? at + d : at + d / run * run_stride + d % run; }
};

/// x / by and the remainder, x >= 0; in 32 bits where they suffice, which is several times faster.
struct Divided {
  int64_t quotient, remainder;
};
__device__ inline Divided divide(int64_t x, int by) {
  if (x > INT32_MAX) return {x / by, x % by};
  const int narrow = static_cast<int>(x);
  return {narrow / by, narrow % by};
}

__device__ inline RowPlace k_place(const KvView& kv, int64_t slot, int head, int dim) {
  const auto [page, offset] = divide(slot, kv.page_size);
  const bool packed = kv.form == KvForm::x_packed;
  return {page * kv.k_page_stride + head * kv.k_head_stride + offset * kv.k_slot_stride,
          packed ? x_of(kv.dtype) : dim, packed ? kv.k_chunk_stride : 0,
          page * kv.scale_page_stride + head * kv.scale_head_stride + offset * kv.scale_slot_stride};
}

__device__ inline RowPlace v_place(const KvView& kv, int64_t slot, int head, int dim) {
  const auto [page, offset] = divide(slot, kv.page_size);
  const bool packed = kv.form == KvForm::x_packed;
  return {page * kv.v_page_stride + head * kv.v_head_stride + kv.v_slot(offset), packed ? 1 : dim,
          packed ? kv.v_dim_stride : 0,
          page * kv.scale_page_stride + head * kv.scale_head_stride + offset * kv.scale_slot_stride};
}

}  // namespace fovea::cuda
