#pragma once
// From warps' results to rows: chunks of keys become groups, and groups rows, by the same additions whether a
// block has all of a row's keys or several blocks leave parts, of which the last to come adds up what is
// left.
#include "kernels/cuda/common/partials.cuh"
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/sm90/decode_tile.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm90 {

/// Of sums relative to 2^maximum of some keys and of those after them: what they count in the sum of both.
/// No keys (-inf, 0) change nothing.
struct CombineFactors {
  float maximum, first, second;
  __device__ CombineFactors(float a, float b) : maximum(fmaxf(a, b)) {
    const float base = finite_max(maximum);
    first = exp2_approx(a - base), second = exp2_approx(b - base);
  }
};
__device__ __forceinline__ float fold(float a, float x, float b, float y) {
  return fmaf(a, x, __fmul_rn(b, y));
}
__device__ __forceinline__ float4 fold(const float4& a, float x, const float4& b, float y) {
  return make_float4(fold(a.x, x, b.x, y), fold(a.y, x, b.y, y), fold(a.z, x, b.z, y), fold(a.w, x, b.w, y));
}
/// The maximum and the sum.
__device__ __forceinline__ float2 combine_states(const CombineFactors& f, const float2& a, const float2& b) {
  return make_float2(f.maximum, fold(a.y, f.first, b.y, f.second));
}

/// Where the parts of a row tile lie: at the index of the split that they begin with. The block that has the
/// first splits leaves the sum of its whole groups at 0. Others, and it after those, leave sums of what they
/// have of a group from its first split on; where they come into a group later they leave each split.
struct PartialLayout {
  enum : int { kLastOfGroup = 1 << 30 };

  const CtaGroupDivision& division;
  int item;   ///< of split 0
  int chunk;  ///< number of split 0's chunk
  int count;  ///< splits
  int group_chunks;

  __device__ int group_first(int split) const { return max(0, split - (chunk + split) % group_chunks); }
  __device__ int group_end(int split) const {
    return min(count, split + group_chunks - (chunk + split) % group_chunks);
  }
  /// How many splits the first part stands for, if it is of whole groups.
  __device__ int head() const {
    const int end = min(count, division.first(division.cta_group_of(item) + 1) - item);
    return max(0, end - (chunk + end) % group_chunks);
  }
  __device__ int pieces() const { return division.cta_group_of(item + count - 1) - division.cta_group_of(item) + 1; }
  /// The part at a split, below 0 if there is none: kLastOfGroup, if the last of its group.
  __device__ int part(int split, int whole) const {
    if (split >= count) return -1;
    if (split == 0 && whole > 0) return kLastOfGroup;
    if (split < whole) return -1;
    const int cta_group = division.cta_group_of(item + split), group = group_first(split);
    const bool partial_group = division.first(cta_group) - item > group;
    if (!partial_group && split != group) return -1;
    const int end = partial_group ? split + 1 : division.first(cta_group + 1) - item;
    return split | (end >= group_end(split) ? kLastOfGroup : 0);
  }
};

/// By all consumers.
template <class P>
struct DecodeCombine {
  static constexpr uint32_t kBarrier = 1;
  static constexpr int kWarps = P::kConsumers / 32;
  static constexpr int kCells = P::kPasses * P::kPassCells;
  const AttentionParams& params;
  float* merge;  ///< shared [kKeyGroups, kPassRows, kCombinePitch]
  /// Shared [2, kKeyGroups + 2, kRows], in parity: of a chunk's key groups, of the group, of the row.
  float2* states;
  int* list;  ///< shared [kConsumers + 8]
  const int thread = static_cast<int>(threadIdx.x);
  int parity = 0, row_parity = 0;
  bool empty = true;                  ///< the group has no chunk
  bool row_empty = true;              ///< the row has no group
  float4 group[kCells], row[kCells];  ///< O of the group; of the row's groups before it

  static __device__ void barrier() { named_barrier_sync(kBarrier, P::kConsumers); }
  static __device__ float2 none() { return make_float2(-INFINITY, 0); }

  /// Calls f(cell, row, column) for this thread's cells, four columns of a row each, of a pass.
  template <class F>
  __device__ void each_of(int pass, int rows, F&& f) {
#pragma unroll
    for (int c = 0; c < P::kPassCells; ++c) {
      const int i = thread + c * P::kConsumers, r = i / (P::kDv / 4);
      if (r < P::kPassRows && pass * P::kPassRows + r < rows)
        f(pass * P::kPassCells + c, pass * P::kPassRows + r, i % (P::kDv / 4) * 4);
    }
  }
  template <class F>
  __device__ void each(int rows, F&& f) {
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass)
      if (pass * P::kPassRows < rows) each_of(pass, rows, f);
  }

  __device__ float2* states_of(int which) const {
    return states + which * (P::kKeyGroups + 2) * P::kRows;
  }
  // Threads that share a row write the same, and read what was written in another parity: before a barrier.
  __device__ float2& group_state(int which, int r) const {
    return states_of(which)[P::kKeyGroups * P::kRows + r];
  }
  __device__ float2& row_state(int which, int r) const {
    return states_of(which)[(P::kKeyGroups + 1) * P::kRows + r];
  }

  __device__ void begin() {
    begin_group();
    row_empty = true;
#pragma unroll
    for (int i = 0; i < kCells; ++i)
      row[i] = make_float4(0, 0, 0, 0);
  }
  __device__ void begin_group() {
    empty = true;
#pragma unroll
    for (int i = 0; i < kCells; ++i)
      group[i] = make_float4(0, 0, 0, 0);
  }

  /// A chunk's result of all warps, to the group's sums or, `partial_group`, to the part of the item's split.
  __device__ void chunk(const WorkItem& item, int head, int rows, const DecodeTile<P>& tile,
                        const WarpPlace<P>& place, bool partial_group) {
    const int g = place.lane / 4, q = place.lane % 4;
    parity ^= 1;
    float2* const state = states_of(parity);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = place.row_tile * 16 + i / 2 * 8;
      if (r >= rows) break;
      const float total = column_sum(tile.sum[i / 2][i % 2]);
      if (g == 0 && place.part == 0)
        state[place.group * P::kRows + r + 2 * q + i % 2] = make_float2(tile.maximum[i / 2][i % 2], total);
    }
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      if (pass * P::kPassRows >= rows) break;
      const int h = pass * P::kPassRows / 8 % 2, first = pass * P::kPassRows % 8;
      barrier();  // the rows before have been read
      if (place.row_tile == pass * P::kPassRows / 16 && 2 * q >= first && 2 * q < first + P::kPassRows)
        put(merge + (place.group * P::kPassRows + 2 * q - first) * P::kCombinePitch + place.part * P::kPartDv,
            tile.o, h);
      barrier();
      each_of(pass, rows, [&](int cell, int r, int column) {
        float2 sum = none();
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < P::kKeyGroups; ++w)
          sum.x = fmaxf(sum.x, state[w * P::kRows + r].x);
        const float base = finite_max(sum.x);
#pragma unroll
        for (int w = 0; w < P::kKeyGroups; ++w) {
          const float2 s = state[w * P::kRows + r];
          const float f = planted_group_weight(exp2_approx(s.x - base), w, P::kKeyGroups);
          const float4 y = *reinterpret_cast<const float4*>(
              merge + (w * P::kPassRows + r % P::kPassRows) * P::kCombinePitch + column);
          sum.y = fmaf(s.y, f, sum.y);
          o = make_float4(fmaf(y.x, f, o.x), fmaf(y.y, f, o.y), fmaf(y.z, f, o.z), fmaf(y.w, f, o.w));
        }
        if (partial_group) {
          store(item, head, item.split, r, column, o, sum);
        } else {
          const float2 before = empty ? none() : group_state(parity ^ 1, r);
          const CombineFactors f(before.x, sum.x);
          group_state(parity, r) = combine_states(f, before, sum);  // the same of all threads of the row
          group[cell] = fold(group[cell], f.first, o, f.second);
        }
      });
    }
    if (!partial_group) empty = false;
  }

  /// This lane's columns of two rows of group h.
  static __device__ void put(float* to, const float (&o)[P::kPartDv / 16][2][4], int h) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int e = 0; e < 2; ++e)
#pragma unroll
      for (int j = 0; j < P::kPartDv / 16; ++j) {
        float* const at = to + e * P::kCombinePitch + 16 * j;
        if constexpr (P::kEightBit)
          *reinterpret_cast<float2*>(at + 2 * g) = make_float2(o[j][h][e], o[j][h][2 + e]);
        else
          at[g] = o[j][h][e], at[g + 8] = o[j][h][2 + e];
      }
  }

  /// The group has no more chunks of the row.
  __device__ void end_group(int rows) {
    row_parity ^= 1;
    each(rows, [&](int cell, int r, int) {
      const float2 before = row_empty ? none() : row_state(row_parity ^ 1, r), sum = group_state(parity, r);
      const CombineFactors f(before.x, sum.x);
      row_state(row_parity, r) = combine_states(f, before, sum);
      row[cell] = fold(row[cell], f.first, group[cell], f.second);
    });
    begin_group();
    row_empty = false;
  }
  __device__ void store_group(const WorkItem& item, int head, int split, int rows) {
    each(rows, [&](int cell, int r, int column) {
      store(item, head, split, r, column, group[cell], group_state(parity, r));
    });
    begin_group();
  }
  __device__ void store_row(const WorkItem& item, int head, int rows) {
    each(rows, [&](int cell, int r, int column) {
      store(item, head, 0, r, column, row[cell], row_state(row_parity, r));
    });
  }
  __device__ void finish(const WorkItem& item, int head, int rows) {
    each(rows, [&](int cell, int r, int column) {
      const float2 sum = row_state(row_parity, r);
      finish<typename P::Q>(params, item, head, r, column, row[cell], sum.x, sum_of(item, sum.y));
    });
  }

  __device__ void store(const WorkItem& item, int head, int split, int r, int column, const float4& o,
                        const float2& state) const {
    const int64_t at = partial_row(params, item.partial_first + split, head, r);
    __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), o);
    if (column == 0) store_state(params, at, state.x, state.y);
  }

  /// After this block's parts of a row tile: the last of the blocks to come here adds all of them up.
  /// `landing`: shared, P::kRingBytes.
  __device__ void arrive(const WorkItem& item, int head, int rows, const PartialLayout& walk, char* landing) {
    const int pieces = walk.pieces();
    uint32_t before = 0;
    barrier();
    if (thread == 0)
      before =
          arrive(params.arrivals + static_cast<int64_t>(item.partial_first) * params.kv_heads.divisor + head,
                 pieces);
    // On the way: the list, and the maxima of the group and of those before it, in the order of the parts.
    const int whole = walk.head();
    int count = list_partials(walk, 0, whole);
    if (thread < rows) group_state(0, thread) = make_float2(-INFINITY, -INFINITY);
    if (thread == 0) list[P::kConsumers] = came_last(before, pieces);
    barrier();
    if (list[P::kConsumers] == 0) return;
    begin();
    float2 totals[kCells] = {};
    const int part_bytes = rows * (P::kDv * 4 + 24);
    const int most = min(P::kConsumers, (P::kRingBytes - 16) / part_bytes);
#pragma unroll 1
    for (int first = 0; first < walk.count; first += P::kConsumers) {
      if (first > 0) count = list_partials(walk, first, whole);
#pragma unroll 1
      for (int at = 0; at < count; at += most)
        combine_partials(item, head, rows, at, min(most, count - at), landing, totals);
    }
    each(rows, [&](int cell, int r, int column) {
      finish<typename P::Q>(params, item, head, r, column, row[cell], group_state(0, r).y, totals[cell].y);
    });
  }

 private:
  /// Lists the parts at kConsumers splits in order.
  __device__ int list_partials(const PartialLayout& walk, int first, int whole) {
    const int part = walk.part(first + thread, whole);
    const unsigned some = __ballot_sync(~0u, part >= 0);
    const int warp = thread / 32;
    barrier();  // the list has been read
    if (thread % 32 == 0) list[P::kConsumers + warp] = __popc(some);
    barrier();
    int before = __popc(some & ((1u << thread % 32) - 1)), count = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int of = list[P::kConsumers + w];
      if (w < warp) before += of;
      count += of;
    }
    if (part >= 0) list[before] = part;
    barrier();
    return count;
  }

  /// Adds listed parts first, ... (`count` of them) to the sums, whose `totals` are those of the group and of
  /// the row. They come through `landing`, all at a time.
  __device__ void combine_partials(const WorkItem& item, int head, int rows, int first, int count, char* landing,
                            float2 (&totals)[kCells]) {
    constexpr int kColumns = P::kDv / 4;
    const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * params.partial_rows;
    const int64_t part0 = partial_row(params, item.partial_first, head, 0);
    float4* const o = reinterpret_cast<float4*>(landing);
    float4* const factors = o + rows * count * kColumns;
    float2* const sums = reinterpret_cast<float2*>(factors + rows * count);
    const auto slot = [&](int i) { return part0 + (list[first + i] & (PartialLayout::kLastOfGroup - 1)) * stride; };
#pragma unroll 1
    for (int r = 0; r < rows; ++r) {
      for (int i = thread; i < count; i += P::kConsumers)
        cp_async_8(shared_address(sums + r * count + i), params.partial_state + slot(i) + r);
      for (int i = thread; i < count * kColumns; i += P::kConsumers)
        cp_async_16(shared_address(o + r * count * kColumns + i),
                    params.partial_out + (slot(i / kColumns) + r) * P::kDv + i % kColumns * 4);
    }
    cp_async_wait_all();
    barrier();
    for (int r = thread / 32; r < rows; r += kWarps)
      combine_factors(list + first, count, sums + r * count, factors + r * count, group_state(0, r));
    barrier();
    each(rows, [&](int cell, int r, int column) {
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        const float4 f = factors[r * count + i];
        group[cell] = fold(group[cell], f.x, o[(r * count + i) * kColumns + column / 4], f.y);
        totals[cell].x = fold(totals[cell].x, f.x, sums[r * count + i].y, f.y);
        if ((list[first + i] & PartialLayout::kLastOfGroup) == 0) continue;
        row[cell] = fold(row[cell], f.z, group[cell], f.w);
        totals[cell].y = fold(totals[cell].y, f.z, totals[cell].x, f.w);
        group[cell] = make_float4(0, 0, 0, 0);
        totals[cell].x = 0;
      }
    });
    barrier();
  }

  /// The factors of a row's parts, by a warp: x and y of the group so far and of the part in their sum; z and
  /// w of the groups before and of this one, which the part closes. `before`: the maxima of the group and of
  /// those before it, brought up to date.
  __device__ void combine_factors(const int* parts, int count, const float2* sums, float4* factors, float2& before) {
    const int lane = thread % 32;
    float2 last = before;
#pragma unroll 1
    for (int at = 0; at < count; at += 32) {
      const bool some = at + lane < count;
      const float maximum = some ? sums[at + lane].x : -INFINITY;
      const bool closes = some && (parts[at + lane] & PartialLayout::kLastOfGroup) != 0;
      const unsigned below = __ballot_sync(~0u, closes) & ((1u << lane) - 1);
      const int begin = 32 - __clz(below);  // lane of the group's first part
      float group = lane == 0 ? fmaxf(maximum, last.x) : maximum;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const float other = __shfl_up_sync(~0u, group, d);
        if (lane - d >= begin) group = fmaxf(group, other);
      }
      const float group_before = __shfl_up_sync(~0u, group, 1);
      float all = closes ? group : -INFINITY;
      if (lane == 0) all = fmaxf(all, last.y);
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const float other = __shfl_up_sync(~0u, all, d);
        if (lane >= d) all = fmaxf(all, other);
      }
      const float all_before = __shfl_up_sync(~0u, all, 1);
      const CombineFactors f(lane == 0 ? last.x : lane > begin ? group_before : -INFINITY, maximum);
      const CombineFactors g(lane == 0 ? last.y : all_before, group);
      if (some)
        factors[at + lane] =
            make_float4(f.first, planted_fold_weight(f.second, at + lane, count), g.first, g.second);
      const int end = min(32, count - at) - 1;
      last.x = __shfl_sync(~0u, closes ? -INFINITY : group, end);
      last.y = __shfl_sync(~0u, all, end);
    }
    __syncwarp();
    if (lane == 0) before = last;
  }
};

}  // namespace fovea::cuda::sm90
