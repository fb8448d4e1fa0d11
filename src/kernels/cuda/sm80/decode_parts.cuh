#pragma once
// The merge of a row tile's parts by those who write the last of them, a warp or a block. Who that is changes
// no bit: parts are summed in the order of their index, more than 2 kMergeFan of them in groups of kMergeFan
// first.
#include "kernels/cuda/sm80/finish.cuh"

namespace fovea::cuda::sm80 {

inline constexpr int kMergeFan = 16;
inline constexpr int kMergeStep = 4;  ///< parts that are summed between changes of the maximum

/// Threads that merge together.
struct WarpTeam {
  static constexpr int kSize = 32;
  __device__ static int rank() { return threadIdx.x % 32; }
  __device__ static void sync() { __syncwarp(); }
  /// What rank 0 says.
  __device__ bool agree(bool x) const { return __shfl_sync(~0u, x ? 1 : 0, 0) != 0; }
};
template <int Threads>
struct BlockTeam {
  static constexpr int kSize = Threads;
  int* shared;
  __device__ static int rank() { return threadIdx.x; }
  __device__ static void sync() { __syncthreads(); }
  __device__ bool agree(bool x) const {
    if (threadIdx.x == 0) *shared = x ? 1 : 0;
    __syncthreads();
    return *shared != 0;
  }
};

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

/// Those before this one of `count` that come to `counter`; the last sets it to 0 again. Of one thread, after
/// a barrier of its team: what the team wrote before is visible to the last after acquire().
__device__ __forceinline__ int arrive(uint32_t* counter, int count) {
  uint32_t before;
  asm volatile("atom.release.gpu.global.inc.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(count - 1)
               : "memory");
  return static_cast<int>(before);
}
__device__ __forceinline__ void acquire() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/// Parts first, first + step, ... (`count` of them) of the item's row tile: into the first of them, or into
/// the output. A thread has `Loads` parts in flight, which changes no bit.
template <class P, int Loads, class Team>
__device__ void merge_parts(const AttentionParams& params, const WorkItem& item, int head, int rows, int first,
                            int step, int count, bool done) {
  static_assert(Loads % kMergeStep == 0);
  constexpr int kColumns = P::kDv / 4;
  const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * P::kRows * step;
  for (int i = Team::rank(); i < rows * kColumns; i += Team::kSize) {
    const int row = i / kColumns, column = i % kColumns * 4;
    const int64_t at = partial_row(params, item.partial_first + first, head, row);
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
          const float w = exp2_approx(state[e].x - base);
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
      if (column == 0) store_state(params, at, top, total);
    }
  }
}

/// By the team that was the last of the item's group.
template <class P, int Loads, class Team>
__device__ void merge_group(const Team& team, const AttentionParams& params, const WorkItem& item, int head,
                            int rows) {
  const PartGroup group = part_group(params, item, head);
  acquire();
  team.sync();
  if (group.count == item.num_splits) {
    merge_parts<P, Loads, Team>(params, item, head, rows, 0, 1, group.count, true);
    return;
  }
  if (group.count > 1)
    merge_parts<P, Loads, Team>(params, item, head, rows, group.first, 1, group.count, false);
  team.sync();
  // Counter 1 is no group's.
  const int groups = (item.num_splits + kMergeFan - 1) / kMergeFan;
  const bool last =
      team.agree(team.rank() == 0 && arrive(part_counter(params, item, head, 1), groups) == groups - 1);
  if (!last) return;
  acquire();
  merge_parts<P, Loads, Team>(params, item, head, rows, 0, kMergeFan, groups, true);
}

}  // namespace fovea::cuda::sm80
