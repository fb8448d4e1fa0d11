#pragma once
// States (m, l, O) of rows: combining those of two splits, and the final O and LSE. O is not divided by l
// before the end.
#include "base/mutation.h"
#include "kernels/cpu/attn_params.h"
#include "kernels/cpu/simd.h"

namespace fovea::FOVEA_SIMD_NAMESPACE {

/// Offset of a head of a row, in elements.
FOVEA_INLINE int64_t row_offset(const attn::Rows& rows, int64_t token, int64_t head) {
  const int64_t at = head * rows.head;
  if (rows.block_rows == 0) return at + token * rows.row;
  return at + token / rows.block_rows * rows.block + token % rows.block_rows * rows.row;
}

/// States of up to kBlockRows rows in scratch.
struct States {
  float* m;  // [rows] largest score, -inf = none
  float* l;  // [rows] sum of e^(s - m)
  float* o;  // [rows, stride]
};

FOVEA_INLINE float exp_one(float x) {
  float lanes[Vec::kLanes];
  store(lanes, exp(set1(x)));
  return lanes[0];
}

/// (m, l, o) += (m2, l2, o2), whose keys follow those of (m, l, o). If the second is empty nothing changes;
/// if the first is empty it becomes the second, bit for bit.
FOVEA_INLINE void combine_row(float* m, float* l, float* o, float m2, float l2, const float* o2,
                              int64_t width) {
  if (l2 == 0.0f) return;
  const float high = *m > m2 ? *m : m2;
  const float w1 = *l == 0.0f ? 0.0f : exp_one(*m - high);
  const float w2 = mutated(Mutation::merge_unscaled) ? 1.0f : exp_one(m2 - high);
  for (int64_t c = 0; c < width; c += Vec::kLanes)
    store(o + c, fma(load(o + c), set1(w1), load(o2 + c) * set1(w2)));
  *l = *l * w1 + l2 * w2;
  *m = high;
}

template <class T>
FOVEA_INLINE void store_output(T* out, const float* o, float weight, int dv) {
  constexpr int kLanes = Vec::kLanes;
  for (int c = 0; c < dv; c += kLanes)  // + 0 turns -0 into 0
    store_n(out + c, fma(load(o + c), set1(weight), zero()), dv - c < kLanes ? dv - c : kLanes);
}

/// Writes O = sum / (l + e^(sink - m)) and LSE = m + log l of one row; 0 and -inf where nothing was seen.
inline void finish_row(const attn::Params& a, int64_t token, int head, float m, float l, const float* o) {
  const float inf = __builtin_inff();
  float weight = l == 0.0f ? 0.0f : 1.0f / l;
  float lse = l == 0.0f ? -inf : m + __builtin_logf(l);
  if (a.sinks != nullptr) {
    const float sink = a.sinks[head];
    const float high = m > sink ? m : sink;
    if (l != 0.0f && high != -inf) {  // a NaN propagates to O
      // Both are relative to the larger, so neither overflows. sink = +inf leaves a weight of 0.
      const float row_weight = sink == inf ? 0.0f : exp_one(m - high);
      const float sinks = mutated(Mutation::sink_twice) ? 2.0f : 1.0f;
      const float total = l * row_weight + sinks * (sink == inf ? 1.0f : exp_one(sink - high));
      weight = row_weight / total;
      if (a.lse_includes_sink) lse = high + __builtin_logf(total);
    } else if (a.lse_includes_sink) {
      lse = sink;
    }
  }
  weight *= a.v_scale;
  const int64_t at = row_offset(a.out_rows, token, head);
  switch (a.dtype) {
    case DType::f32: store_output(static_cast<float*>(a.out) + at, o, weight, a.dv); break;
    case DType::f16: store_output(static_cast<fp16*>(a.out) + at, o, weight, a.dv); break;
    case DType::bf16: store_output(static_cast<bf16*>(a.out) + at, o, weight, a.dv); break;
  }
  if (a.lse != nullptr) a.lse[token * a.num_heads + head] = lse;
}

/// The query head of a packed row.
FOVEA_INLINE int query_head(const attn::Params& a, int kv_head, int row) {
  if (mutated(Mutation::heads_interleaved)) return row % a.group * a.num_kv_heads + kv_head;
  return kv_head * a.group + row % a.group;
}

/// finish_row() of a packed row.
FOVEA_INLINE void finish_packed_row(const attn::Params& a, int seq, int kv_head, int row, float m, float l,
                                    const float* o) {
  const int64_t token = a.seqs[seq].first_row + row / a.group;
  finish_row(a, token, query_head(a, kv_head, row), m, l, o);
}

inline void run_combine(const attn::Params& a, const attn::CombineItem& item, float* scratch) {
  const int64_t width = a.layout.dvp;
  const int64_t record = width + attn::kPadFloats;
  float* o = scratch + a.layout.state[0];
  for (int r = 0; r < item.rows; ++r) {
    float m = -__builtin_inff(), l = 0.0f;
    for (int64_t c = 0; c < width; c += Vec::kLanes)
      store(o + c, zero());
    for (int s = 0; s < item.splits; ++s) {
      const float* partial = a.partials + (item.partial + static_cast<int64_t>(s) * item.rows + r) * record;
      if (s + 1 == item.splits && mutated(Mutation::split_lost)) break;
      if (s + 1 == item.splits && mutated(Mutation::split_twice))
        combine_row(&m, &l, o, partial[0], partial[1], partial + attn::kPadFloats, width);
      combine_row(&m, &l, o, partial[0], partial[1], partial + attn::kPadFloats, width);
    }
    finish_packed_row(a, item.seq, item.kv_head, item.row + r, m, l, o);
  }
}

}  // namespace fovea::FOVEA_SIMD_NAMESPACE
