#pragma once
// The merge of a row tile's parts by the block that writes the last of them, a warp for each row. Who that is
// changes no bit: parts are summed in the order of their index, more than 2 kMergeFan of them in groups of
// kMergeFan first.
#include "kernels/cuda/common/finish.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda {

inline constexpr int kMergeFan = 16;
inline constexpr int kMergeStep = 4;  ///< parts that are summed between changes of the maximum

/// The first counter at which a part of the item arrives, and how many do.
struct PartGroup {
  uint32_t* counter;
  int first, count;
};
__device__ __forceinline__ uint32_t* part_counter(const AttentionParams& p, const WorkItem& item, int head,
                                                  int part) {
  return p.arrivals + static_cast<int64_t>(item.partial_first + part) * p.kv_heads.divisor + head;
}
__device__ __forceinline__ PartGroup part_group(const AttentionParams& p, const WorkItem& item, int head) {
  const int n = item.num_splits;
  const bool one = n <= 2 * kMergeFan;
  const int first = one ? 0 : item.split / kMergeFan * kMergeFan;
  return {part_counter(p, item, head, first), first, one ? n : min(kMergeFan, n - first)};
}

/// How many of `count` came to `counter` before; the last sets it to 0 again.
__device__ __forceinline__ uint32_t arrive(uint32_t* counter, int count) {
  uint32_t before;
  asm volatile("atom.release.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count - 1)
               : "memory");
  return before;
}
/// Whether the one that found `before` is the last of `count`.
__device__ __forceinline__ bool came_last(uint32_t before, int count) {
  const bool last = before == static_cast<uint32_t>(count - 1);
  // By the thread that has read the counter: a fence of another thread acquires nothing.
  if (last) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  return last;
}

/// Whether this is the last of `count` that come to `counter`, which sets it to 0 again. Of one thread
/// between two barriers: what the threads before the first wrote, here and in the blocks that came earlier,
/// is visible to those after the second, if it is the last.
__device__ __forceinline__ bool arrive_last(uint32_t* counter, int count) {
  return came_last(arrive(counter, count), count);
}

/// Parts first, first + step, ... (`count` of them) of a row of the item's tile: into the first of them, or
/// into the output. By a warp. A thread has `Loads` parts in flight, which changes no bit.
template <class P, int Loads>
__device__ void merge_row(const AttentionParams& params, const WorkItem& item, int head, int row, int first,
                          int step, int count, bool done) {
  static_assert(Loads % kMergeStep == 0);
  const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * params.partial_rows * step;
  const int64_t at = partial_row(params, item.partial_first + first, head, row);
  float2 merged = make_float2(-INFINITY, 0);
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
          const int64_t part = at + (begin + s) * stride;
          state[s] = load_state(params, part);
          x[s] = __ldcg(reinterpret_cast<const float4*>(params.partial_out + part * P::kDv + column));
        }
      }
#pragma unroll
      for (int s = 0; s < Loads; s += kMergeStep) {
        float larger = top;
#pragma unroll
        for (int e = s; e < s + kMergeStep; ++e)
          larger = fmaxf(larger, state[e].x);
        const float base = finite_max(larger);
        const float f = exp2_approx(top - base);
        top = larger;
        total *= f;
        o = make_float4(o.x * f, o.y * f, o.z * f, o.w * f);
#pragma unroll
        for (int e = s; e < s + kMergeStep; ++e) {
          const float w = planted_fold_weight(exp2_approx(state[e].x - base), begin + e, count);
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
      merged = make_float2(top, total);
    }
  }
  // All lanes have read the states that this replaces.
  __syncwarp();
  if (!done && threadIdx.x % 32 == 0) store_state(params, at, merged.x, merged.y);
}

/// What the block that was the last of the item's group does for a row.
template <class P, int Loads>
__device__ void merge_group_row(const AttentionParams& params, const WorkItem& item, int head, int row) {
  const PartGroup group = part_group(params, item, head);
  if (group.count == item.num_splits) {
    merge_row<P, Loads>(params, item, head, row, 0, 1, group.count, true);
    return;
  }
  if (group.count > 1) merge_row<P, Loads>(params, item, head, row, group.first, 1, group.count, false);
  // Counters 1 to 8 are no group's; kRows are at most as many.
  const int groups = (item.num_splits + kMergeFan - 1) / kMergeFan;
  __syncwarp();
  int last = 0;
  if (threadIdx.x % 32 == 0) last = arrive_last(part_counter(params, item, head, 1 + row), groups);
  __syncwarp();  // a shuffle orders no memory
  if (__shfl_sync(~0u, last, 0) == 0) return;
  merge_row<P, Loads>(params, item, head, row, 0, kMergeFan, groups, true);
}

}  // namespace fovea::cuda
