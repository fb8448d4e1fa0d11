#pragma once
// Scores of a tile: S[row][key] = q . k, unscaled.
//
// Each (row, key) has its own accumulator: lane l adds d = l, l + W, l + 2W, ... in order, and the lanes are
// added by the tree of reduce_add. No register tile, page size or row count changes a bit of it.
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/attn_tile-inl.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// Stores lanes [r * n, r * n + n) of `v` at p + r * stride, n = kLanes / kRows, for each of kRows rows.
template <int kRows>
FOVEA_INLINE void store_rows(float* p, int64_t stride, Vec v) {
  constexpr int n = Vec::kLanes / kRows;
  if constexpr (kRows == 1) {
    store(p, v);
  } else {
    alignas(64) float lanes[Vec::kLanes];
    store(lanes, v);
    for (int r = 0; r < kRows; ++r)
      __builtin_memcpy(p + r * stride, lanes + r * n, n * sizeof(float));
  }
}

/// Scores of kRows rows q [kRows, dp] with the keys whose group of kLanes / kRows holds a bit of `seen`;
/// scores [kRows, kTileKeys]. keys[j] -> d elements. `next` (null = none): keys to prefetch, one for one.
template <class T, int kRows>
void score_rows(const float* q, int64_t dp, int d, const T* const* keys, uint64_t seen, const T* const* next,
                float* scores) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kKeys = kLanes / kRows;
  const int full = d / kLanes * kLanes;
  const int tail = d - full;
  for (int j0 = 0; j0 < attn::kTileKeys; j0 += kKeys) {
    if (((seen >> j0) & ((1u << kKeys) - 1u)) == 0) continue;
    Vec sum[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i)
      sum[i] = zero();
    const auto add = [&](const Vec(&k)[kKeys], int c) __attribute__((always_inline)) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vec x = load(q + r * dp + c);
#pragma GCC unroll 16
        for (int j = 0; j < kKeys; ++j)
          sum[r * kKeys + j] = fma(x, k[j], sum[r * kKeys + j]);
      }
    };
    for (int c = 0; c < full; c += kLanes) {
      if (next != nullptr && c * sizeof(T) % 64 == 0)
        for (int j = 0; j < kKeys; ++j)
          prefetch(next[j0 + j] + c, 1);
      Vec k[kKeys];
#pragma GCC unroll 16
      for (int j = 0; j < kKeys; ++j)
        k[j] = load(keys[j0 + j] + c);
      add(k, c);
    }
    if (tail != 0) {
      Vec k[kKeys];
#pragma GCC unroll 16
      for (int j = 0; j < kKeys; ++j)
        k[j] = load_n(keys[j0 + j] + full, tail);
      add(k, full);
    }
    store_rows<kRows>(scores + j0, attn::kTileKeys, reduce_add_all(sum));
  }
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
