#pragma once
// Row tiles of split keys. The splits are the leaves of a tree of P::kFanIn children a node; the block that arrives
// last at a node merges its children in order, so that sums depend on the sequence's own keys alone.
#include "kernels/cuda/sm80/mask.cuh"
#include "kernels/cuda/sm80/policy.h"
#include "kernels/cuda/sm80/softmax.cuh"
#include "kernels/cuda/tiles/convert.cuh"

namespace fovea::cuda::sm80 {

/// Four neighbours of a finished row, converted.
template <class T>
__device__ __forceinline__ void store_out4(const AttentionParams& p, int64_t q_row, int head, int column, float4 o) {
  T* out = static_cast<T*>(p.out) + q_row * p.out_row_stride + static_cast<int64_t>(head) * p.v_head_dim + column;
  *reinterpret_cast<uint2*>(out) = make_uint2(pack<T>(o.x, o.y), pack<T>(o.z, o.w));
}

/// P: Q, kRows of a tile, kDv, kThreads of a block, kFanIn.
template <class P>
struct MergeTree {
  const AttentionParams& params;
  int* last_arrival;  ///< shared

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
