#pragma once
// Score of a (query row, key) pair beyond scale * q.k: soft cap, biases and visibility. The plain kernels
// handle only the causal limit and the end of the sequence; the general ones all of it.
#include "base/mutation.h"
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/common/softmax.cuh"

namespace fovea::cuda {

/// One query row.
struct RowContext {
  int row = 0;       ///< query row i of its sequence
  int position = 0;  ///< i + n_k - n_q
  int head = 0;      ///< query head
  float slope = 0;   ///< ALiBi
};

__device__ __forceinline__ RowContext row_context(const AttentionParams& p, const WorkItem& item,
                                                  int packed_row, int kv_head) {
  RowContext r;
  r.row = p.group.quotient(packed_row);
  r.position = r.row + item.n_k - item.n_q;
  r.head =
      kv_head * static_cast<int>(p.group.divisor) + packed_row - r.row * static_cast<int>(p.group.divisor);
  if (p.mask.alibi_slopes != nullptr && r.row < item.n_q) r.slope = p.mask.alibi_slopes[r.head];
  if (mutated(Mutation::slopes_of_heads)) {
    const float heads = static_cast<float>(p.kv_heads.divisor * p.group.divisor);
    r.slope = p.mask.alibi_slopes == nullptr ? 0.0f : exp2f(-8.0f * static_cast<float>(r.head + 1) / heads);
  }
  return r;
}

__device__ __forceinline__ int floor_divide(int a, int b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

__device__ inline bool visible(const MaskParams& m, const WorkItem& item, const RowContext& r, int key) {
  if (key >= item.n_k || r.row >= item.n_q) return false;
  const int distance = r.position - key;
  bool seen = !(m.causal && distance < 0) && !(m.window_right >= 0 && -distance > m.window_right) &&
              !(m.window_left >= 0 && distance > m.window_left && key >= m.sink_tokens);
  if (m.chunk > 0) seen = seen && floor_divide(key, m.chunk) == floor_divide(r.position, m.chunk);
  if (!seen && m.spans != nullptr) {
    const int end = m.span_offsets[item.seq + 1];
    for (int i = m.span_offsets[item.seq]; i < end && !seen; ++i) {
      const int first = m.spans[2 * i], past = m.spans[2 * i + 1];
      seen = first <= r.position && r.position <= past && first <= key && key <= past;
    }
  }
  if (seen && m.packed != nullptr) {
    const int64_t bit = static_cast<int64_t>(r.row) * item.n_k + key;
    seen = (m.packed[m.packed_offsets[item.seq] + bit / 8] >> (bit % 8)) & 1;
  }
  return seen;
}

/// The score in log2 units from the raw dot product; -inf = masked.
__device__ inline float general_score(const AttentionParams& p, const WorkItem& item, const RowContext& r,
                                      int key, float dot) {
  const MaskParams& m = p.mask;
  float s = dot * p.scale;
  if (m.softcap > 0.0f) {
    // tanh(x) = 1 - 2 / (e^(2x) + 1): saturates at both ends without an overflow to NaN.
    const float e = exp2f(s * (2.0f * kLog2e) / m.softcap);
    s = m.softcap * (1.0f - 2.0f / (e + 1.0f));
  }
  if (m.alibi_slopes != nullptr) s -= r.slope * fabsf(static_cast<float>(r.position - key));
  if (m.tree_bias != nullptr && item.n_q <= m.tree_size && r.row < item.n_q) {
    const int column = key - (item.n_k - item.n_q);
    if (column >= 0 && column < m.tree_size) s += m.tree_bias[r.row * m.tree_size + column];
  }
  return visible(m, item, r, key) ? s * kLog2e : -INFINITY;
}

}  // namespace fovea::cuda
