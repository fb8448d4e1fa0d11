#pragma once
// Rounding of K and V rows to the KV cache's dtype. Included by kv_append_<isa>.cc.
#include "kernels/cpu/kv_append_kernels.h"
#include "kernels/cpu/simd_rows.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

template <class T>
void store_rounded(const float* x, int64_t n, T* out) {
  for_each_vector(n, [=](int64_t c, int lanes) __attribute__((always_inline)) {
    store_n(out + c, load_part(x + c, lanes), lanes);
  });
}

template <class T>
void store_fp8(const float* x, int64_t n, float scale, T* out) {
  const Vec by = set1(scale);
  for_each_vector(n, [=](int64_t c, int lanes) __attribute__((always_inline)) {
    store_n(out + c, load_part(x + c, lanes) / by, lanes);
  });
}

inline void store_int8(const float* x, int64_t n, float scale, int8_t* out) {
  const Vec by = set1(scale), most = set1(127.0f), least = set1(-127.0f);
  for_each_vector(n, [=](int64_t c, int lanes) __attribute__((always_inline)) {
    store_n(out + c, max(least, min(most, load_part(x + c, lanes) / by)), lanes);
  });
}

inline void store_elements(const float* x, int64_t n, float scale, KvCacheDType dtype, void* out) {
  switch (dtype) {
    case KvCacheDType::float32: return store_rounded(x, n, static_cast<float*>(out));
    case KvCacheDType::float16: return store_rounded(x, n, static_cast<fp16*>(out));
    case KvCacheDType::bfloat16: return store_rounded(x, n, static_cast<bf16*>(out));
    case KvCacheDType::fp8_e4m3: return store_fp8(x, n, scale, static_cast<e4m3*>(out));
    case KvCacheDType::fp8_e5m2: return store_fp8(x, n, scale, static_cast<e5m2*>(out));
    case KvCacheDType::int8_per_token_head: return store_int8(x, n, scale, static_cast<int8_t*>(out));
    default: __builtin_unreachable();  // KvCache::create has refused it
  }
}

inline float max_magnitude(const float* x, int64_t n) {
  Vec most = zero(), sum = zero();  // of 0 x: NaN if one is not finite
  for_each_vector(n, [&](int64_t c, int lanes) __attribute__((always_inline)) {
    const Vec v = load_part(x + c, lanes);
    most = max(most, max(zero() - v, v));
    sum = fma(zero(), v, sum);
  });
  return reduce_add(sum) == 0.0f ? reduce_max(most) : __builtin_nanf("");
}

inline constexpr kv_append::Kernels kKvAppend = {&store_elements, &max_magnitude};

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
