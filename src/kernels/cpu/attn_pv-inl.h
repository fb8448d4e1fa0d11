#pragma once
// O = alpha O + P V of a tile: one chain of fused multiply-adds per (row, column), over the keys in ascending
// order. A key that a row does not see has P = 0, which changes nothing (except the sign of a 0).
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/attn_tile-inl.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// Columns [0, kVecs x kLanes) of kRows rows (the last vector cut to `last_lanes`). p [kRows, kTileKeys],
/// values[j] + offset -> the columns, out [kRows, stride]. `next` (null = none): values to prefetch.
template <class T, int kRows, int kVecs>
void accumulate_panel(const float* p, const T* const* values, const T* const* next, int64_t offset,
                      int last_lanes, int first, int last, const float* alpha, float* out, int64_t stride) {
  constexpr int kLanes = Vec::kLanes;
  Vec sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const Vec scale = set1(alpha[r]);
#pragma GCC unroll 8
    for (int c = 0; c < kVecs; ++c)
      sum[r][c] = load(out + r * stride + c * kLanes) * scale;
  }
  for (int j = first; j < last; ++j) {
    const T* row = values[j] + offset;
    if (kVecs > 1 && next != nullptr) prefetch(next[j] + offset, kVecs * kLanes);
    Vec v[kVecs];
#pragma GCC unroll 8
    for (int c = 0; c < kVecs; ++c)
      v[c] = kVecs == 1 ? load_n(row, last_lanes) : load(row + c * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec x = set1(p[r * attn::kTileKeys + j]);
#pragma GCC unroll 8
      for (int c = 0; c < kVecs; ++c)
        sum[r][c] = fma(x, v[c], sum[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kVecs; ++c)
      store(out + r * stride + c * kLanes, sum[r][c]);
}

/// Pointers to the values of a tile: rows[j] + panel * panel_step -> the columns of a panel.
template <class T>
struct TileValues {
  const T* const* rows;
  const T* const* next;  // rows to prefetch, or null
  int64_t panel_step;    // panel width for rows as stored, kTileKeys x panel width for widened panels
};

/// Columns of one panel of width kPanelVecs x kLanes; the last panel may be narrower.
template <class T, int kRows>
FOVEA_INLINE void accumulate_rows(const float* p, const TileValues<T>& values, const T* const* next,
                                  int panel, int dv, int first, int last, const float* alpha, float* out,
                                  int64_t stride) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kVecs = attn::kPanelVecs<kLanes>;
  const int64_t offset = panel * values.panel_step;
  const int column = panel * kVecs * kLanes;
  if (column + kVecs * kLanes <= dv)
    return accumulate_panel<T, kRows, kVecs>(p, values.rows, next, offset, kLanes, first, last, alpha,
                                             out + column, stride);
  for (int c = 0; column + c < dv; c += kLanes) {
    const int lanes = dv - column - c < kLanes ? dv - column - c : kLanes;
    accumulate_panel<T, kRows, 1>(p, values.rows, nullptr, offset + c, lanes, first, last, alpha,
                                  out + column + c, stride);
  }
}

/// One row of O with the keys of `seen` only, whatever the values of the others (NaN, infinity): the same
/// chain, for tiles where 0 x V is not 0.
template <class T>
void accumulate_seen(const float* p, const TileValues<T>& values, int dv, uint64_t seen, float alpha,
                     float* out) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kWidth = attn::kPanelVecs<kLanes> * kLanes;
  for (int c = 0; c < dv; c += kLanes) {
    const int lanes = dv - c < kLanes ? dv - c : kLanes;
    const int64_t offset = c / kWidth * values.panel_step + c % kWidth;
    Vec sum = load(out + c) * set1(alpha);
    for (uint64_t left = seen; left != 0; left &= left - 1) {
      const int j = __builtin_ctzll(left);
      sum = fma(set1(p[j]), load_n(values.rows[j] + offset, lanes), sum);
    }
    store(out + c, sum);
  }
}

/// Whether every value of the keys of `keys` is finite.
template <class T>
bool all_finite(const TileValues<T>& values, int dv, uint64_t keys) {
  constexpr int kLanes = Vec::kLanes;
  constexpr int kWidth = attn::kPanelVecs<kLanes> * kLanes;
  Vec sum = zero();  // of 0 x v: NaN if one is not finite
  for (; keys != 0; keys &= keys - 1) {
    const T* row = values.rows[__builtin_ctzll(keys)];
    for (int c = 0; c < dv; c += kLanes) {
      const int64_t offset = c / kWidth * values.panel_step + c % kWidth;
      sum = fma(zero(), load_n(row + offset, dv - c < kLanes ? dv - c : kLanes), sum);
    }
  }
  return reduce_add(sum) == 0.0f;
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
