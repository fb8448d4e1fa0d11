#pragma once
// The combine step by the last-arriving CTA of a row tile, one warp per row. Which CTA that is changes no
// bit: partial results are summed in the order of their split, more than 2 kCombineFanIn of them first in
// groups of kCombineFanIn.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda {

inline constexpr int kCombineFanIn = 16;
inline constexpr int kCombineStep = 4;  ///< partial results summed per update of the row max

/// A group of splits that is reduced together: its arrival counter, first split and number of splits.
struct SplitGroup {
  uint32_t* counter;
  int first, count;
};
__device__ __forceinline__ uint32_t* arrival_counter(const AttentionParams& p, const WorkItem& item, int head,
                                                     int split) {
  return p.arrivals + static_cast<int64_t>(item.partial_first + split) * p.kv_heads.divisor + head;
}
__device__ __forceinline__ SplitGroup split_group(const AttentionParams& p, const WorkItem& item, int head) {
  const int n = item.num_splits;
  const bool one = n <= 2 * kCombineFanIn;
  const int first = one ? 0 : item.split / kCombineFanIn * kCombineFanIn;
  return {arrival_counter(p, item, head, first), first, one ? n : min(kCombineFanIn, n - first)};
}

/// Increments `counter` and returns its value before: how many of `count` arrived earlier. The last of them
/// resets it to 0.
__device__ __forceinline__ uint32_t arrive(uint32_t* counter, int count) {
  uint32_t before;
  asm volatile("atom.release.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count - 1)
               : "memory");
  return before;
}
/// Whether arrive() returned `before` to the last of `count`; for the last, with an acquire fence.
__device__ __forceinline__ bool is_last_arrival(uint32_t before, int count) {
  const bool last = before == static_cast<uint32_t>(count - 1);
  // In the thread that read the counter: a fence in another thread acquires nothing.
  if (last) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  return last;
}

/// Whether this is the last of `count` arrivals at `counter`, which resets it to 0. One thread calls it,
/// between two barriers. If it is the last, writes before the first barrier, in this CTA and in those that
/// arrived earlier, are visible after the second.
__device__ __forceinline__ bool arrive_last(uint32_t* counter, int count) {
  return is_last_arrival(arrive(counter, count), count);
}

/// A warp combines splits first, first + step, ... (`count` of them) of a row of the item's tile, into the
/// first of them or, with `done`, into the output. A thread has `Loads` loads in flight; their number changes
/// no bit.
template <class P, int Loads>
__device__ void combine_row(const AttentionParams& params, const WorkItem& item, int head, int row, int first,
                            int step, int count, bool done) {
  static_assert(Loads % kCombineStep == 0);
  const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * params.partial_rows * step;
  const int64_t at = partial_row(params, item.partial_first + first, head, row);
  float2 combined = make_float2(-INFINITY, 0);
  for (int column = threadIdx.x % 32 * 4; column < P::kDv; column += 128) {
    float top = -INFINITY, total = 0;
    float4 o = make_float4(0, 0, 0, 0);
    for (int begin = 0; begin < count; begin += Loads) {
      float2 state[Loads];
      float4 x[Loads];
#pragma unroll
      for (int s = 0; s < Loads; ++s) {
        state[s] = make_float2(-INFINITY, 0);
        x[s] = make_float4(0, 0, 0, 0);
        if (begin + s < count) {
          const int64_t partial = at + (begin + s) * stride;
          state[s] = load_state(params, partial);
          x[s] = __ldcg(reinterpret_cast<const float4*>(params.partial_out + partial * P::kDv + column));
        }
      }
#pragma unroll
      for (int s = 0; s < Loads; s += kCombineStep) {
        float larger = top;
#pragma unroll
        for (int e = s; e < s + kCombineStep; ++e)
          larger = fmaxf(larger, state[e].x);
        const float base = finite_max(larger);
        const float f = exp2_approx(top - base);
        top = larger;
        total *= f;
        o = make_float4(o.x * f, o.y * f, o.z * f, o.w * f);
#pragma unroll
        for (int e = s; e < s + kCombineStep; ++e) {
          const float w = planted_combine_weight(exp2_approx(state[e].x - base), begin + e, count);
          total = fmaf(state[e].y, w, total);
          o = make_float4(fmaf(x[e].x, w, o.x), fmaf(x[e].y, w, o.y), fmaf(x[e].z, w, o.z),
                          fmaf(x[e].w, w, o.w));
        }
      }
    }
    if (done) {
      finish<typename P::Q>(params, item, head, row, column, o, top, total);
    } else {
      __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), o);
      combined = make_float2(top, total);
    }
  }
  // All lanes have read the states that this replaces.
  __syncwarp();
  if (!done && threadIdx.x % 32 == 0) store_state(params, at, combined.x, combined.y);
}

/// Combines a row in the last-arriving CTA of the item's group; the last warp to do so among the groups of a
/// row combines the groups.
template <class P, int Loads>
__device__ void combine_group_row(const AttentionParams& params, const WorkItem& item, int head, int row) {
  const SplitGroup group = split_group(params, item, head);
  if (group.count == item.num_splits) {
    combine_row<P, Loads>(params, item, head, row, 0, 1, group.count, true);
    return;
  }
  if (group.count > 1) combine_row<P, Loads>(params, item, head, row, group.first, 1, group.count, false);
  // Counters 1 to 8 belong to no group; kRows is at most 8.
  const int groups = (item.num_splits + kCombineFanIn - 1) / kCombineFanIn;
  __syncwarp();
  int last = 0;
  if (threadIdx.x % 32 == 0) last = arrive_last(arrival_counter(params, item, head, 1 + row), groups);
  __syncwarp();  // a shuffle orders no memory
  if (__shfl_sync(~0u, last, 0) == 0) return;
  combine_row<P, Loads>(params, item, head, row, 0, kCombineFanIn, groups, true);
}

}  // namespace fovea::cuda
