#pragma once
// Heads are lanes: each (key, head) is one chain of fused multiply-adds over the dimensions, and each key's
// sum over heads adds vectors of heads in order, then lanes. Included by index_scores_<isa>.cc.
#include "kernels/cpu/index_scores_kernels.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_rows.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

template <class T>
void widen_index_keys(const void* const* keys, int n, int dim, float* out) {
  for (int j = 0; j < n; ++j) {
    const T* key = static_cast<const T*>(keys[j]);
    float* row = out + static_cast<int64_t>(j) * dim;
    int c = 0;
    for (; c + Vec::kLanes <= dim; c += Vec::kLanes)
      store(row + c, load(key + c));
    if (c < dim) store_n(row + c, load_n(key + c, dim - c), dim - c);
  }
}

inline void widen_index_keys_of(const void* const* keys, int n, int dim, KvCacheDType dtype, float* out) {
  switch (dtype) {
    case KvCacheDType::float32: return widen_index_keys<float>(keys, n, dim, out);
    case KvCacheDType::float16: return widen_index_keys<fp16>(keys, n, dim, out);
    case KvCacheDType::bfloat16: return widen_index_keys<bf16>(keys, n, dim, out);
    case KvCacheDType::fp8_e4m3: return widen_index_keys<e4m3>(keys, n, dim, out);
    default: __builtin_unreachable();  // KvCache::create has refused it
  }
}

/// Adds the heads [0, kVecs x kLanes) of q [dim, width] to the sums of kCount keys.
template <int kCount, int kVecs>
FOVEA_INLINE void add_heads(const float* q, const float* weights, int width, int dim, const float* keys,
                            Vec* sums) {
  Vec dots[kCount][kVecs];
#pragma GCC unroll 16
  for (int j = 0; j < kCount; ++j)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v)
      dots[j][v] = zero();
  for (int c = 0; c < dim; ++c) {
    Vec x[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v)
      x[v] = load(q + static_cast<int64_t>(c) * width + v * Vec::kLanes);
#pragma GCC unroll 16
    for (int j = 0; j < kCount; ++j) {
      const Vec y = set1(keys[static_cast<int64_t>(j) * dim + c]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v)
        dots[j][v] = fma(x[v], y, dots[j][v]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < kCount; ++j)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v)
      sums[j] = fma(max(dots[j][v], zero()), load(weights + v * Vec::kLanes), sums[j]);
}

template <int kCount>
FOVEA_INLINE void score_some(const index_scores::Query& query, int width, int dim, const float* keys,
                             const float* scales, float* scores) {
  Vec sums[kCount];
  for (int j = 0; j < kCount; ++j)
    sums[j] = zero();
  constexpr int kVecs = Vec::kLanes == 16 ? 1 : 2;
  for (int h = 0; h < width; h += kVecs * Vec::kLanes)
    add_heads<kCount, kVecs>(query.q + h, query.weights + h, width, dim, keys, sums);
  // + 0 turns -0 into 0, which it equals.
  for (int j = 0; j < kCount; ++j)
    scores[j] = reduce_add(sums[j]) * scales[j] + 0.0f;
}

inline void score_keys(const index_scores::Query& query, int width, int dim, const float* keys,
                       const float* scales, int n, float* scores) {
  constexpr int kCount = Vec::kLanes == 16 ? 16 : 6;
  int j = 0;
  for (; j + kCount <= n; j += kCount)
    score_some<kCount>(query, width, dim, keys + static_cast<int64_t>(j) * dim, scales + j, scores + j);
  for (; j < n; ++j)
    score_some<1>(query, width, dim, keys + static_cast<int64_t>(j) * dim, scales + j, scores + j);
}

inline constexpr index_scores::Kernels kIndexScores = {&widen_index_keys_of, &score_keys};

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
