#pragma once
// Lightning attention and the gated delta rule, for the instruction set of the including file. The recurrence
// is computed as it is defined, row by row: without matrix units the chunked form has no fewer operations,
// and this way a row's bits do not depend on how a sequence is divided into calls. Each column of v has a
// state of its own; every sum over Dk is one chain of fused multiply-adds in ascending order.
#include "kernels/cpu/linear_attention_kernels.h"
#include "kernels/cpu/simd_rows.h"

namespace fovea::linear_attention_detail::FOVEA_SIMD_NAMESPACE {

using namespace fovea::FOVEA_SIMD_NAMESPACE;

constexpr int kBlockVecs = 4;
constexpr int kColumns = kBlockVecs * Vec::kLanes;

template <class T>
FOVEA_INLINE void widen_row(const T* from, float* to, int64_t n) {
  for_each_vector(n, [&](int64_t i, int lanes) { store_part(to + i, load_n(from + i, lanes), lanes); });
}

/// x *= rsqrt(sum x^2 + 1e-6).
FOVEA_INLINE void normalize_row(float* x, int64_t n) {
  Vec sum = zero();
  for_each_vector(n, [&](int64_t i, int lanes) {
    const Vec v = load_n(x + i, lanes);
    sum = fma(v, v, sum);
  });
  const Vec by = set1(1.0f / __builtin_sqrtf(reduce_add(sum) + 1e-6f));
  for_each_vector(n, [&](int64_t i, int lanes) { store_part(x + i, load_n(x + i, lanes) * by, lanes); });
}

/// `known` = S^T k.
FOVEA_INLINE void state_times_key(const float* s, const float* k, int dk, Vec (&known)[kBlockVecs]) {
  for (Vec& x : known)
    x = zero();
  for (int r = 0; r < dk; ++r)
    for (int c = 0; c < kBlockVecs; ++c)
      known[c] = fma(load(s + r * kColumns + c * Vec::kLanes), set1(k[r]), known[c]);
}

/// S = decay S + k e^T; out = S^T q; with kNext also known = S^T (the next row's k), in one pass over S.
template <bool kNext>
FOVEA_INLINE void update_state(float* s, const float* k, const float* q, const float* next, int dk,
                               float decay, const Vec (&e)[kBlockVecs], Vec (&out)[kBlockVecs],
                               Vec (&known)[kBlockVecs]) {
  for (int c = 0; c < kBlockVecs; ++c) {
    out[c] = zero();
    if constexpr (kNext) known[c] = zero();
  }
  const Vec d = set1(decay);
  for (int r = 0; r < dk; ++r) {
    const Vec kr = set1(k[r]), qr = set1(q[r]);
    for (int c = 0; c < kBlockVecs; ++c) {
      float* at = s + r * kColumns + c * Vec::kLanes;
      const Vec x = fma(kr, e[c], load(at) * d);
      store(at, x);
      out[c] = fma(x, qr, out[c]);
      if constexpr (kNext) known[c] = fma(x, set1(next[r]), known[c]);
    }
  }
}

template <class T>
inline void recurrence_of(const RecurrenceBlock& b) {
  const int dk = b.dk;
  float* s = b.scratch;
  const int64_t row = padded(dk);
  float* rows[2] = {s + int64_t{dk} * kColumns, s + int64_t{dk} * kColumns + 2 * row};  // k, then q
  for (int r = 0; r < dk; ++r)
    for (int c = 0; c < kBlockVecs; ++c) {
      const int lanes = b.columns - c * Vec::kLanes < Vec::kLanes ? b.columns - c * Vec::kLanes : Vec::kLanes;
      const bool zeros = b.state_in == nullptr || lanes <= 0;
      store(s + r * kColumns + c * Vec::kLanes,
            zeros ? zero() : load_n(b.state_in + r * b.state_stride + c * Vec::kLanes, lanes));
    }
  const auto read = [&](int64_t t) __attribute__((always_inline)) {
    float* k = rows[t % 2];
    float* q = k + row;
    widen_row(static_cast<const T*>(b.rows.k) + t * b.rows.k_stride, k, dk);
    widen_row(static_cast<const T*>(b.rows.q) + t * b.rows.q_stride, q, dk);
    if (b.normalize) {
      normalize_row(k, dk);
      normalize_row(q, dk);
    }
  };
  Vec e[kBlockVecs], out[kBlockVecs], known[kBlockVecs];
  if (b.tokens > 0) {
    read(0);
    if (b.delta) state_times_key(s, rows[0], dk, known);
  }
  for (int64_t t = 0; t < b.tokens; ++t) {
    const float decay = b.decay[t * b.decay_stride];
    const T* v = static_cast<const T*>(b.rows.v) + t * b.rows.v_stride;
    for (int c = 0; c < kBlockVecs; ++c) {
      const int lanes = b.columns - c * Vec::kLanes < Vec::kLanes ? b.columns - c * Vec::kLanes : Vec::kLanes;
      e[c] = lanes > 0 ? load_n(v + c * Vec::kLanes, lanes) : zero();
      if (b.delta) {
        e[c] = fma(set1(-decay), known[c], e[c]);
        if (b.beta != nullptr) e[c] = e[c] * set1(b.beta[t * b.beta_stride]);
      }
    }
    const bool last = t + 1 == b.tokens;
    if (!last) read(t + 1);
    const float *k = rows[t % 2], *next = rows[(t + 1) % 2];
    if (b.delta && !last)
      update_state<true>(s, k, k + row, next, dk, decay, e, out, known);
    else
      update_state<false>(s, k, k + row, next, dk, decay, e, out, known);
    T* to = static_cast<T*>(b.rows.out) + t * b.rows.out_stride;
    for (int c = 0; c < kBlockVecs; ++c) {
      const int lanes = b.columns - c * Vec::kLanes < Vec::kLanes ? b.columns - c * Vec::kLanes : Vec::kLanes;
      if (lanes > 0) store_n(to + c * Vec::kLanes, out[c] * set1(b.scale), lanes);
    }
  }
  if (b.state_out == nullptr) return;
  for (int r = 0; r < dk; ++r)
    for (int c = 0; c * Vec::kLanes < b.columns; ++c) {
      const int lanes = b.columns - c * Vec::kLanes < Vec::kLanes ? b.columns - c * Vec::kLanes : Vec::kLanes;
      store_n(b.state_out + r * b.state_stride + c * Vec::kLanes, load(s + r * kColumns + c * Vec::kLanes),
              lanes);
    }
}

inline void recurrence(const RecurrenceBlock& b) {
  switch (b.rows.dtype) {
    case DType::f32: return recurrence_of<float>(b);
    case DType::f16: return recurrence_of<fp16>(b);
    case DType::bf16: return recurrence_of<bf16>(b);
  }
}

}  // namespace fovea::linear_attention_detail::FOVEA_SIMD_NAMESPACE
