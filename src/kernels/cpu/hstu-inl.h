#pragma once
// HSTU attention of a block of rows, for the instruction set of the including file. Tiles of 64 keys; a row's
// sum over its visible keys is one chain in ascending order, so that its bits do not depend on other rows.
#include "kernels/cpu/linear_attention_kernels.h"
#include "kernels/cpu/simd_rows.h"

namespace fovea::linear_attention_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

constexpr int kGroup = 4;      // rows that share a pass over a tile of K
constexpr int kScoreVecs = 2;  // vectors of keys in registers
constexpr int kSumVecs = 4;    // vectors of a row of O in registers

struct HstuScratch {
  float *q, *k, *v, *weights, *sums, *row;
  int64_t q_row, v_row;
};

/// A tile's keys as columns of k [dk][64], and its values as rows of v.
template <class T>
FOVEA_INLINE void read_tile(const HstuBlock& b, const HstuScratch& s, int64_t first, int keys) {
  for (int j = 0; j < keys; ++j) {
    const T* k = static_cast<const T*>(b.rows.k) + (first + j) * b.rows.k_stride;
    for_each_vector(b.dk, [&](int64_t i, int lanes) { store_part(s.row + i, load_n(k + i, lanes), lanes); });
    for (int d = 0; d < b.dk; ++d)
      s.k[d * kHstuKeys + j] = s.row[d];
    const T* v = static_cast<const T*>(b.rows.v) + (first + j) * b.rows.v_stride;
    float* to = s.v + j * s.v_row;
    for_each_vector(b.dv, [&](int64_t i, int lanes) { store_part(to + i, load_n(v + i, lanes), lanes); });
  }
  for (int d = 0; d < b.dk && keys < kHstuKeys; ++d)
    for (int j = keys; j < kHstuKeys; ++j)
      s.k[d * kHstuKeys + j] = 0.0f;
}

/// q.k of rows [row, row + kGroup) of the block and the tile's keys, into weights.
FOVEA_INLINE void scores_of(const HstuScratch& s, int dk, int row) {
  for (int first = 0; first < kHstuKeys; first += kScoreVecs * Vec::kLanes) {
    Vec sum[kGroup][kScoreVecs];
    for (auto& of_row : sum)
      for (Vec& x : of_row)
        x = zero();
    for (int d = 0; d < dk; ++d) {
      Vec k[kScoreVecs];
      for (int c = 0; c < kScoreVecs; ++c)
        k[c] = load(s.k + d * kHstuKeys + first + c * Vec::kLanes);
      for (int r = 0; r < kGroup; ++r) {
        const Vec q = set1(s.q[(row + r) * s.q_row + d]);
        for (int c = 0; c < kScoreVecs; ++c)
          sum[r][c] = fma(q, k[c], sum[r][c]);
      }
    }
    for (int r = 0; r < kGroup; ++r)
      for (int c = 0; c < kScoreVecs; ++c)
        store(s.weights + (row + r) * kHstuKeys + first + c * Vec::kLanes, sum[r][c]);
  }
}

FOVEA_INLINE int bucket_of(const HstuBlock& b, int64_t x) {
  if (x < 0) x = -x;
  int low = 0, high = b.time_buckets;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (b.time_bounds[middle] <= x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// Scores of row i become silu(alpha s + bias) / N.
FOVEA_INLINE void weigh(const HstuBlock& b, float* w, int64_t i, int64_t first, int begin, int end) {
  if (b.position_bias == nullptr && b.time_bias == nullptr) {
    for (int at = begin / Vec::kLanes * Vec::kLanes; at < end; at += Vec::kLanes)
      store(w + at, load(w + at) * set1(b.alpha));
  } else {
    for (int j = begin; j < end; ++j) {
      float bias = b.position_bias == nullptr ? 0.0f : b.position_bias[first + j - i];
      if (b.time_bias != nullptr) {
        const int64_t next = i + 1 < b.keys ? i + 1 : b.keys - 1;
        bias += b.time_bias[bucket_of(b, b.times[next] - b.times[first + j])];
      }
      w[j] = w[j] * b.alpha + bias;
    }
  }
  const Vec n = set1(b.divisor), one = set1(1.0f);
  for (int at = begin / Vec::kLanes * Vec::kLanes; at < end; at += Vec::kLanes) {
    const Vec z = load(w + at);
    store(w + at, z / ((one + exp(zero() - z)) * n));
  }
}

/// sums += the weights [begin, end) times rows of v.
FOVEA_INLINE void add_values(const HstuScratch& s, int dv, const float* w, float* sums, int begin, int end) {
  for (int64_t d = 0; d < dv; d += kSumVecs * Vec::kLanes) {  // rows are padded
    Vec sum[kSumVecs];
    for (int c = 0; c < kSumVecs; ++c)
      sum[c] = load(sums + d + c * Vec::kLanes);
    for (int j = begin; j < end; ++j) {
      const Vec weight = set1(w[j]);
      for (int c = 0; c < kSumVecs; ++c)
        sum[c] = fma(weight, load(s.v + j * s.v_row + d + c * Vec::kLanes), sum[c]);
    }
    for (int c = 0; c < kSumVecs; ++c)
      store(sums + d + c * Vec::kLanes, sum[c]);
  }
}

template <class T>
inline void hstu_of(const HstuBlock& b) {
  HstuScratch s = {};
  const int rows = static_cast<int>(b.row_end - b.row_begin);
  s.q_row = padded(b.dk);
  s.v_row = padded(b.dv);
  s.q = b.scratch;
  s.k = s.q + kHstuRows * s.q_row;
  s.v = s.k + int64_t{b.dk} * kHstuKeys;
  s.weights = s.v + kHstuKeys * s.v_row;
  s.sums = s.weights + kHstuRows * kHstuKeys;
  s.row = s.sums + kHstuRows * s.v_row;
  for (int64_t i = 0; i < kHstuRows * s.v_row; ++i)
    s.sums[i] = 0.0f;
  for (int64_t i = 0; i < kHstuKeys * s.v_row; ++i)
    s.v[i] = 0.0f;
  for (int64_t i = 0; i < kHstuRows * s.q_row; ++i)
    s.q[i] = 0.0f;
  for (int r = 0; r < rows; ++r) {
    const T* q = static_cast<const T*>(b.rows.q) + (b.row_begin + r - b.first_row) * b.rows.q_stride;
    float* to = s.q + r * s.q_row;
    for_each_vector(b.dk, [&](int64_t i, int lanes) { store_part(to + i, load_n(q + i, lanes), lanes); });
  }
  for (int64_t first = 0; first < b.keys; first += kHstuKeys) {
    const int keys = static_cast<int>(b.keys - first < kHstuKeys ? b.keys - first : kHstuKeys);
    const auto clamp = [&](int64_t j) __attribute__((always_inline)) {
      return static_cast<int>(j < first ? 0 : j > first + keys ? keys : j - first);
    };
    bool any = first < b.row_end && b.row_begin < first + keys;
    for (int r = 0; r < rows && !any; ++r)
      any = clamp(b.seen_begin[r]) < clamp(b.seen_end[r]);
    if (!any) continue;
    read_tile<T>(b, s, first, keys);
    for (int row = 0; row < rows; row += kGroup)
      scores_of(s, b.dk, row);
    for (int r = 0; r < rows; ++r) {
      const int64_t i = b.row_begin + r;
      float *w = s.weights + r * kHstuKeys, *sums = s.sums + r * s.v_row;
      const int begin = clamp(b.seen_begin[r]), end = clamp(b.seen_end[r]);
      // The row itself is outside [begin, end), or is their last key or later.
      const bool self = i >= first && i < first + keys && (i < b.seen_begin[r] || i >= b.seen_end[r]);
      const int own = static_cast<int>(i - first);
      const bool before = self && i < b.seen_begin[r];
      if (begin < end || self) {
        const int low = self && (own < begin || begin >= end) ? own : begin;
        const int high = self && (own >= end || begin >= end) ? own + 1 : end;
        weigh(b, w, i, first, low, high);
      }
      if (before) add_values(s, b.dv, w, sums, own, own + 1);
      if (begin < end) add_values(s, b.dv, w, sums, begin, end);
      if (self && !before) add_values(s, b.dv, w, sums, own, own + 1);
    }
  }
  for (int r = 0; r < rows; ++r) {
    T* to = static_cast<T*>(b.rows.out) + (b.row_begin + r - b.first_row) * b.rows.out_stride;
    const float* sums = s.sums + r * s.v_row;
    for_each_vector(b.dv, [&](int64_t i, int lanes) { store_n(to + i, load_n(sums + i, lanes), lanes); });
  }
}

inline void hstu(const HstuBlock& b) {
  switch (b.rows.dtype) {
    case DType::f32: return hstu_of<float>(b);
    case DType::f16: return hstu_of<fp16>(b);
    case DType::bf16: return hstu_of<bf16>(b);
  }
}

}  // namespace fovea::linear_attention_detail::FOVEA_SIMD_NAMESPACE
