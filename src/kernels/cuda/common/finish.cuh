#pragma once
// The end of a row: normalise, convert and write; and access to the states of partial results.
#include "kernels/cuda/common/mask.cuh"
#include "kernels/cuda/common/softmax.cuh"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda {

/// A row's sum of probabilities for finish_row(). For a sequence whose keys cannot be read it is NaN, which
/// makes O and LSE NaN.
__device__ __forceinline__ float sum_of(const WorkItem& item, float sum) {
  return item.n_k == kLostKeys ? NAN : sum;
}

/// Converts and stores four adjacent elements of a finished row.
template <class T>
__device__ __forceinline__ void store_out4(const AttentionParams& p, int q_row, int head, int column,
                                           float4 o) {
  T* out = static_cast<T*>(p.out) + p.out_rows.offset(q_row, head) + column;
  *reinterpret_cast<uint2*>(out) = make_uint2(pack<T>(o.x, o.y), pack<T>(o.z, o.w));
}

/// Writes four columns of packed row item.row_first + row, whose sum_of() is `sum`; with column 0 the LSE
/// too.
template <class Q>
__device__ __forceinline__ void finish(const AttentionParams& p, const WorkItem& item, int head, int row,
                                       int column, float4 o, float maximum, float sum) {
  const RowContext r = row_context(p, item, item.row_first + row, head);
  if (r.row >= item.n_q) return;
  const RowEnd end =
      finish_row(maximum, sum, p.sinks == nullptr ? nullptr : p.sinks + r.head, p.lse_includes_sink);
  const float f = end.inverse * p.kv.v_scale;
  if (column < p.v_head_dim)
    store_out4<Q>(p, item.q_first + r.row, r.head, column, make_float4(o.x * f, o.y * f, o.z * f, o.w * f));
  if (column == 0 && p.lse != nullptr)
    p.lse[static_cast<int64_t>(item.q_first + r.row) * p.kv_heads.divisor * p.group.divisor + r.head] =
        end.lse;
}

/// Index of a row of a partial result in AttentionParams::partial_state.
__device__ __forceinline__ int64_t partial_row(const AttentionParams& p, int partial, int head, int row) {
  return (static_cast<int64_t>(partial) * static_cast<int>(p.kv_heads.divisor) + head) * p.partial_rows + row;
}
__device__ __forceinline__ float2 load_state(const AttentionParams& p, int64_t at) {
  return __ldcg(reinterpret_cast<const float2*>(p.partial_state + at));
}
__device__ __forceinline__ void store_state(const AttentionParams& p, int64_t at, float maximum, float sum) {
  __stcg(reinterpret_cast<float2*>(p.partial_state + at), make_float2(maximum, sum));
}

}  // namespace fovea::cuda
