#pragma once
// The end of a unit: its warps' results become one, and the splits of a row tile become the output. The splits are
// the leaves of a tree of kFanIn children a node; the block that arrives last at a node merges its children in
// order, so that sums depend on the sequence's own keys alone.
#include "kernels/cuda/sm80/mask.cuh"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/tiles/convert.cuh"
#include "kernels/cuda/sm80/softmax.cuh"

namespace fovea::cuda::sm80 {

/// Four neighbours of a finished row, converted.
template <class T>
__device__ __forceinline__ void store_out4(const AttentionParams& p, int64_t q_row, int head, int column, float4 o) {
  T* out = static_cast<T*>(p.out) + q_row * p.out_row_stride + static_cast<int64_t>(head) * p.v_head_dim + column;
  *reinterpret_cast<uint2*>(out) = make_uint2(pack<T>(o.x, o.y), pack<T>(o.z, o.w));
}

template <class P>
struct DecodeEpilogue {
  const AttentionParams& params;
  float* merge;       ///< shared [kWarps, 8, kMergePitch]
  float2* state;      ///< shared [2, kWarps, kRows]
  int* last_arrival;  ///< shared
  int parity = 0;

  /// Index of a node's rows in the partial arrays.
  __device__ int64_t rows_of(const WorkItem& item, int node, int head) const {
    return (static_cast<int64_t>(item.partial_first + node) * static_cast<int>(params.kv_heads.divisor) + head) *
           P::kRows;
  }

  __device__ float2 load_state(int64_t at) const {
    return __ldcg(reinterpret_cast<const float2*>(params.partial_state + at));
  }
  __device__ void store_state(int64_t at, float maximum, float sum) const {
    __stcg(reinterpret_cast<float2*>(params.partial_state + at), make_float2(maximum, sum));
  }

  __device__ void finish(const WorkItem& item, int head, int row, int column, float4 o, float maximum, float sum) {
    const RowContext r = row_context(params, item, item.row_first + row, head);
    if (r.row >= item.n_q) return;
    const RowEnd end = finish_row(maximum, sum, params.sinks == nullptr ? nullptr : params.sinks + r.head,
                                  params.lse_includes_sink);
    const float f = end.inverse * params.kv.v_scale;
    // 0 * inf of a row that saw nothing can't be: its sums are 0.
    if (column < params.v_head_dim)
      store_out4<typename P::Q>(params, item.q_first + r.row, r.head, column,
                                make_float4(o.x * f, o.y * f, o.z * f, o.w * f));
    if (column == 0 && params.lse != nullptr)
      params.lse[static_cast<int64_t>(item.q_first + r.row) * params.kv_heads.divisor * params.group.divisor + r.head] =
          end.lse;
  }

  /// Warps' results -> the unit's. `o` by fragments, `maximum` and `sum` of rows g and g + 8 of each row tile.
  __device__ void unit(const WorkItem& item, int head, const float (&o)[P::kRowTiles][P::kDv / 8][4],
                       const float (&maximum)[P::kRowTiles][2], const float (&sum)[P::kRowTiles][2]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int g = lane / 4, q = lane % 4;
    const int rows = min(P::kRows, item.n_q * static_cast<int>(params.group.divisor) - item.row_first);
    parity ^= 1;
    float2* states = state + parity * P::kWarps * P::kRows;
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float total = quad_sum(sum[t][h]);
        if (q == 0) states[warp * P::kRows + t * 16 + h * 8 + g] = make_float2(maximum[t][h], total);
      }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < P::kRowTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int first = t * 16 + h * 8;
        if (first >= rows) break;
        float top = -INFINITY;
        for (int w = 0; w < P::kWarps; ++w)
          top = fmaxf(top, states[w * P::kRows + first + g].x);
        const float f = exp2_approx(maximum[t][h] - finite_max(top));
        if (first > 0) __syncthreads();  // the eight rows before have been read
        float* rows_out = merge + (warp * 8 + g) * P::kMergePitch + 2 * q;
#pragma unroll
        for (int j = 0; j < P::kDv / 8; ++j)
          *reinterpret_cast<float2*>(rows_out + 8 * j) = make_float2(o[t][j][2 * h] * f, o[t][j][2 * h + 1] * f);
        __syncthreads();
        reduce(item, head, states, first, min(8, rows - first));
      }
    if (item.num_splits > 1) climb(item, head, rows);
  }

  /// Sums the warps' rows [first, first + count) and writes them out, or as a leaf of the tree.
  __device__ void reduce(const WorkItem& item, int head, const float2* states, int first, int count) {
    constexpr int kColumns = P::kDv / 4;
    for (int i = threadIdx.x; i < count * kColumns; i += P::kThreads) {
      const int row = i / kColumns, column = i % kColumns * 4;
      float top = -INFINITY;
      for (int w = 0; w < P::kWarps; ++w)
        top = fmaxf(top, states[w * P::kRows + first + row].x);
      const float base = finite_max(top);
      float total = 0;
      float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int w = 0; w < P::kWarps; ++w) {
        const float2 s = states[w * P::kRows + first + row];
        total = fmaf(s.y, exp2_approx(s.x - base), total);
        const float4 x = *reinterpret_cast<const float4*>(merge + (w * 8 + row) * P::kMergePitch + column);
        o = make_float4(o.x + x.x, o.y + x.y, o.z + x.z, o.w + x.w);
      }
      if (item.num_splits == 1) {
        finish(item, head, first + row, column, o, top, total);
      } else {
        const int64_t at = rows_of(item, item.split, head) + first + row;
        __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), o);
        if (column == 0) store_state(at, top, total);
      }
    }
  }

  /// From leaf item.split upwards for as long as this block is the last child to arrive.
  __device__ void climb(const WorkItem& item, int head, int rows) {
    int level_first = 0, count = item.num_splits, index = item.split;
    while (count > 1) {
      const int parents_first = level_first + count;
      const int parents = (count + P::kFanIn - 1) / P::kFanIn;
      const int parent = index / P::kFanIn;
      const int children = min(P::kFanIn, count - parent * P::kFanIn);
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        uint32_t* arrivals =
            params.arrivals +
            static_cast<int64_t>(item.partial_first + parents_first + parent) * params.kv_heads.divisor + head;
        const bool last = atomicAdd(arrivals, 1) == static_cast<uint32_t>(children - 1);
        if (last) *arrivals = 0;
        *last_arrival = last;
        __threadfence();
      }
      __syncthreads();
      if (*last_arrival == 0) return;
      merge_children(item, head, rows, level_first + parent * P::kFanIn, children,
                     parents == 1 ? -1 : parents_first + parent);
      level_first = parents_first;
      count = parents;
      index = parent;
    }
  }

  /// Nodes [child, child + children) -> node `parent`, or the output when it is -1.
  __device__ void merge_children(const WorkItem& item, int head, int rows, int child, int children, int parent) {
    constexpr int kColumns = P::kDv / 4;
    const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * P::kRows;
    for (int i = threadIdx.x; i < rows * kColumns; i += P::kThreads) {
      const int row = i / kColumns, column = i % kColumns * 4;
      const int64_t at = rows_of(item, child, head) + row;
      float2 states[P::kFanIn];
      float top = -INFINITY;
#pragma unroll
      for (int c = 0; c < P::kFanIn; ++c) {
        states[c] = c < children ? load_state(at + c * stride) : make_float2(-INFINITY, 0);
        top = fmaxf(top, states[c].x);
      }
      const float base = finite_max(top);
      float total = 0;
      float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int c = 0; c < P::kFanIn; ++c) {
        const float f = exp2_approx(states[c].x - base);
        if (c >= children) continue;
        const float4 x =
            __ldcg(reinterpret_cast<const float4*>(params.partial_out + (at + c * stride) * P::kDv + column));
        total = fmaf(states[c].y, f, total);
        o = make_float4(fmaf(x.x, f, o.x), fmaf(x.y, f, o.y), fmaf(x.z, f, o.z), fmaf(x.w, f, o.w));
      }
      if (parent < 0) {
        finish(item, head, row, column, o, top, total);
      } else {
        const int64_t to = rows_of(item, parent, head) + row;
        __stcg(reinterpret_cast<float4*>(params.partial_out + to * P::kDv + column), o);
        if (column == 0) store_state(to, top, total);
      }
    }
  }
};

}  // namespace fovea::cuda::sm80
