#pragma once
// Dot products -> probabilities: soft cap, biases, mask, online softmax. The same for both kernels, on
// fragments of kRows rows by kKeys keys of a lane, with at(r, i), row(r) (packed row of the sequence),
// keys(r) (the keys that row r sees) and key(i) (its number in the tile); kLanes consecutive lanes share a
// row.
#include "kernels/cuda/common/mask.cuh"

namespace fovea::cuda::portable {

/// The keys that a row at a position sees, spans and packed masks ignored: below `last`, keys from `first` on
/// and sink tokens from `chunk_first` on.
struct alignas(16) RowKeys {
  int first, last, chunk_first, unused;
};
__device__ inline RowKeys row_keys(const MaskParams& m, const WorkItem& item, int position) {
  constexpr int kFar = 1 << 30;  // so that no sum with a position overflows
  RowKeys k{0, item.key_last, 0, 0};
  if (m.causal) k.last = min(k.last, position + 1);
  if (m.window_right >= 0) k.last = min(k.last, position + min(m.window_right, kFar) + 1);
  if (m.window_left >= 0) k.first = position - min(m.window_left, kFar);
  if (m.chunk > 0) {
    const int64_t begin = static_cast<int64_t>(floor_divide(position, m.chunk)) * m.chunk;
    k.chunk_first = static_cast<int>(begin);
    k.first = max(k.first, k.chunk_first);
    k.last = static_cast<int>(min(static_cast<int64_t>(k.last), begin + m.chunk));
  }
  return k;
}

/// The ranges of keys that rows [first_row, first_row + rows) of a warp see.
struct WarpKeys {
  int all_first, all_last;  ///< every row sees these
  int any_first, any_last;  ///< outside of these, and past the sink tokens, no row sees a key
};
__device__ inline WarpKeys warp_keys(const AttentionParams& p, const WorkItem& item, int first_row,
                                     int rows) {
  const int past = min(first_row + rows, item.n_q * static_cast<int>(p.group.divisor));
  if (first_row >= past) return {0, 0, 0, 0};
  const int shift = item.n_k - item.n_q;
  // Both ends are monotonic in the position.
  const RowKeys low = row_keys(p.mask, item, p.group.quotient(first_row) + shift);
  const RowKeys high = row_keys(p.mask, item, p.group.quotient(past - 1) + shift);
  if (p.mask.spans != nullptr) return {0, 0, 0, item.key_last};
  if (p.mask.packed != nullptr) return {0, 0, low.first, high.last};
  return {high.first, low.last, low.first, high.last};
}

/// Stores the keys that each row of the item's tile sees, in shared memory rather than in registers. A
/// barrier must follow.
template <class P>
__device__ void store_row_keys(const AttentionParams& p, const WorkItem& item, RowKeys* rows) {
  for (int i = static_cast<int>(threadIdx.x); i < P::kRows; i += P::kThreads)
    rows[i] = row_keys(p.mask, item, p.group.quotient(item.row_first + i) + item.n_k - item.n_q);
}

/// Whether scores are modified (negative scale, soft cap, ALiBi, tree bias); online_softmax() then gets them
/// in log2 units.
__device__ inline bool has_score_mod(const AttentionParams& p) {
  // With a negative scale the largest product is not the largest score.
  return p.scale < 0.0f || p.mask.softcap > 0.0f || p.mask.alibi_slopes != nullptr ||
         p.mask.tree_bias != nullptr;
}

/// Applies scale, soft cap, ALiBi and tree bias; the scores are then in log2 units.
template <class F>
__device__ __forceinline__ void apply_score_mod(const AttentionParams& p, const WorkItem& item, int head,
                                                int key0, const F& s) {
  const MaskParams& m = p.mask;
#pragma unroll
  for (int r = 0; r < F::kRows; ++r) {
    const RowContext row = row_context(p, item, s.row(r), head);
#pragma unroll
    for (int i = 0; i < F::kKeys; ++i)
      s.at(r, i) *= p.scale;
    if (m.softcap > 0.0f) {
#pragma unroll
      for (int i = 0; i < F::kKeys; ++i) {
        float& x = s.at(r, i);
        if constexpr (F::kPrecise) {
          x = m.softcap * tanhf(x / m.softcap);
        } else {
          // tanh(y) = 1 - 2 / (e^(2y) + 1): saturates at both ends without an overflow to NaN; a NaN, which
          // fminf would drop, stays one.
          const float e = exp2_approx(x * __fdividef(2.0f * kLog2e, m.softcap));
          x = m.softcap * (1.0f - __fdividef(2.0f, (e > 1e30f ? 1e30f : e) + 1.0f));
        }
      }
    }
    if (m.alibi_slopes != nullptr) {
#pragma unroll
      for (int i = 0; i < F::kKeys; ++i)
        s.at(r, i) = fmaf(-row.slope, fabsf(static_cast<float>(row.position - key0 - s.key(i))), s.at(r, i));
    }
    if (m.tree_bias != nullptr && item.n_q <= m.tree_size && row.row < item.n_q) {
      const float* bias = m.tree_bias + static_cast<int64_t>(row.row) * m.tree_size;
      const int first = key0 - (item.n_k - item.n_q);
#pragma unroll
      for (int i = 0; i < F::kKeys; ++i) {
        const int column = first + s.key(i);
        if (column >= 0 && column < m.tree_size) s.at(r, i) += __ldg(bias + column);
      }
    }
#pragma unroll
    for (int i = 0; i < F::kKeys; ++i)
      s.at(r, i) *= kLog2e;
  }
}

/// Sets the scores of keys that a row does not see to -inf.
template <class F>
__device__ __forceinline__ void apply_mask(const AttentionParams& p, const WorkItem& item, int head, int key0,
                                           const F& s) {
  const MaskParams& m = p.mask;
#pragma unroll
  for (int r = 0; r < F::kRows; ++r) {
    if (m.spans != nullptr || m.packed != nullptr) {
      const RowContext row = row_context(p, item, s.row(r), head);
      uint32_t seen = 0;
      static_assert(F::kKeys <= 32);
#pragma unroll 1
      for (int i = 0; i < F::kKeys; ++i) {
        const int key = key0 + s.key(i);
        if (key < item.key_last && visible(m, item, row, key)) seen |= 1u << i;
      }
#pragma unroll
      for (int i = 0; i < F::kKeys; ++i)
        if ((seen >> i & 1) == 0) s.at(r, i) = -INFINITY;
    } else {
      const RowKeys k = s.keys(r);
      const int first = k.first - key0, last = k.last - key0;
      if (key0 >= m.sink_tokens) {
#pragma unroll
        for (int i = 0; i < F::kKeys; ++i)
          if (s.key(i) >= last || s.key(i) < first) s.at(r, i) = -INFINITY;
      } else {
        const int sinks = m.sink_tokens - key0, chunk = k.chunk_first - key0;
#pragma unroll
        for (int i = 0; i < F::kKeys; ++i) {
          const int key = s.key(i);
          const bool seen = key < last && (key >= first || (key < sinks && key >= chunk));
          if (!seen) s.at(r, i) = -INFINITY;
        }
      }
    }
  }
}

/// The softmax state of a lane's rows: the maximum over all lanes, and this lane's share of the sum.
template <int kRows>
struct RowState {
  /// row_max of a row that has seen no key: finite, so that -inf - -inf never occurs.
  static constexpr float kNegInfFinite = -3.402823466e38f;
  float row_max[kRows], row_sum[kRows];

  __device__ void reset() {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      row_max[r] = kNegInfFinite, row_sum[r] = 0.0f;
  }
  __device__ float row_max_or_neg_inf(int r) const {
    return row_max[r] == kNegInfFinite ? -INFINITY : row_max[r];
  }
};

/// Scores times `scale` (log2 units) -> unrounded probabilities. rescale(f) multiplies row r of O by f[r]; it
/// is not called where all factors of the warp are 1, which would change nothing. Roundings are explicit
/// where the compiler might fuse operations in one kernel and not in another.
template <class F, class Rescale>
__device__ __forceinline__ void online_softmax(const F& s, RowState<F::kRows>& state, float scale,
                                               Rescale&& rescale) {
  {
    float top[F::kRows], factor[F::kRows];
#pragma unroll
    for (int i = 0; i < F::kKeys; ++i)
#pragma unroll
      for (int r = 0; r < F::kRows; ++r)
        top[r] = i == 0 ? s.at(r, i) : fmaxf(top[r], s.at(r, i));
#pragma unroll
    for (int step = 1; step < F::kLanes; step *= 2)
#pragma unroll
      for (int r = 0; r < F::kRows; ++r)
        top[r] = fmaxf(top[r], __shfl_xor_sync(~0u, top[r], step));
    bool changed = false;
#pragma unroll
    for (int r = 0; r < F::kRows; ++r) {
      const float maximum = fmaxf(state.row_max[r], top[r] * scale);
      factor[r] = exp2_approx(state.row_max[r] - maximum);
      changed |= factor[r] != 1.0f;
      state.row_max[r] = maximum;
      state.row_sum[r] = __fmul_rn(state.row_sum[r], factor[r]);
    }
    if (__any_sync(~0u, changed)) rescale(factor);
  }
  float sum[F::kRows];
#pragma unroll
  for (int r = 0; r < F::kRows; ++r)
    sum[r] = 0.0f;
#pragma unroll
  for (int i = 0; i < F::kKeys; ++i)
#pragma unroll
    for (int r = 0; r < F::kRows; ++r) {
      s.at(r, i) = exp2_approx(fmaf(s.at(r, i), scale, -state.row_max[r]));
      sum[r] += s.at(r, i);
    }
#pragma unroll
  for (int r = 0; r < F::kRows; ++r)
    state.row_sum[r] = __fadd_rn(state.row_sum[r], sum[r]);
}

/// Dot products of a tile -> probabilities, not yet multiplied by the scales of the values. `factors` are the
/// scales of the keys, if there are any; `rescale` is that of online_softmax().
template <class F, class Rescale>
__device__ __forceinline__ void probabilities(const AttentionParams& p, const WorkItem& item, int head,
                                              int key0, int tile_keys, const WarpKeys& keys,
                                              const float* factors, const F& s, RowState<F::kRows>& state,
                                              Rescale&& rescale) {
  if (p.kv.k_scales != nullptr) {
#pragma unroll
    for (int i = 0; i < F::kKeys; ++i) {
      const float x = factors[s.key(i)];
#pragma unroll
      for (int r = 0; r < F::kRows; ++r)
        s.at(r, i) *= x;
    }
  }
  const bool modified = has_score_mod(p);
  if (modified) apply_score_mod(p, item, head, key0, s);
  if (key0 < keys.all_first || key0 + tile_keys > keys.all_last) apply_mask(p, item, head, key0, s);
  online_softmax(s, state, modified ? 1.0f : p.scale * kLog2e, rescale);
}

}  // namespace fovea::cuda::portable
