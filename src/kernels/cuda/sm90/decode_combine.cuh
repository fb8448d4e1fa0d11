#pragma once
// Combining the results of the warps to rows: keys to chunks, chunks to groups, groups to rows. The additions
// are the same whether one CTA has all keys of a row, or several CTAs store partial results that the
// last-arriving CTA combines.
#include "kernels/cuda/common/partials.cuh"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/sm90/decode_tile.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/planted.cuh"

namespace fovea::cuda::sm90 {

/// The factors of two softmax states in their combined state, for sums relative to 2^row_max. A state
/// without keys, (-inf, 0), changes nothing.
struct CombineFactors {
  float row_max, first, second;
  __device__ CombineFactors(float a, float b) : row_max(fmaxf(a, b)) {
    const float base = finite_max(row_max);
    first = exp2_approx(a - base), second = exp2_approx(b - base);
  }
};
__device__ __forceinline__ float combine(float a, float x, float b, float y) {
  return fmaf(a, x, __fmul_rn(b, y));
}
__device__ __forceinline__ float4 combine(const float4& a, float x, const float4& b, float y) {
  return make_float4(combine(a.x, x, b.x, y), combine(a.y, x, b.y, y), combine(a.z, x, b.z, y),
                     combine(a.w, x, b.w, y));
}
/// Combines two states (row_max, row_sum).
__device__ __forceinline__ float2 combine_states(const CombineFactors& f, const float2& a, const float2& b) {
  return make_float2(f.row_max, combine(a.y, f.first, b.y, f.second));
}

/// Where the partial results of a row tile are stored. Each is at the index of the first split that it
/// covers. The CTA that has the first splits stores the sum of all its whole groups at 0. What a CTA has of a
/// partial group is stored as one sum if it has the group's first split, and split by split otherwise.
///
/// Splits of a row tile, 8 in a group, divided between CTAs a, b and c:
///     a a a a a a a a | a a a b b b b b | b b b b b b b b | b b c c c c . .
/// Partial results: a: 0 to 7 at 0, 8 to 10 at 8; b: 11 to 15 at 11, 12, 13, 14 and 15, 16 to 23 at 16, 24
/// and 25 at 24; c: 26 to 29 at 26, 27, 28 and 29.
struct PartialLayout {
  enum : int { kLastOfGroup = 1 << 30 };

  const CtaGroupDivision& division;
  int tile_item;    ///< index of the item of split 0
  int first_chunk;  ///< number of the chunk of split 0
  int num_splits;
  int group_chunks;

  __device__ int group_first(int split) const { return max(0, split - (first_chunk + split) % group_chunks); }
  __device__ int group_end(int split) const {
    return min(num_splits, split + group_chunks - (first_chunk + split) % group_chunks);
  }
  /// The number of splits in the whole groups of the first CTA, which have one sum at 0.
  __device__ int leading_splits() const {
    const int end = min(num_splits, division.first(division.cta_group_of(tile_item) + 1) - tile_item);
    return max(0, end - (first_chunk + end) % group_chunks);
  }
  /// The number of CTAs that have splits of the row tile.
  __device__ int num_ctas() const {
    return division.cta_group_of(tile_item + num_splits - 1) - division.cta_group_of(tile_item) + 1;
  }
  /// The partial result at a split, below 0 if there is none; with kLastOfGroup if it is the last of its
  /// group. `leading`: leading_splits().
  __device__ int partial_at(int split, int leading) const {
    if (split >= num_splits) return -1;
    if (split == 0 && leading > 0) return kLastOfGroup;
    if (split < leading) return -1;
    const int cta_group = division.cta_group_of(tile_item + split), group = group_first(split);
    const bool partial_group = division.first(cta_group) - tile_item > group;
    if (!partial_group && split != group) return -1;
    const int end = partial_group ? split + 1 : division.first(cta_group + 1) - tile_item;
    return split | (end >= group_end(split) ? kLastOfGroup : 0);
  }
};

/// Combines results in shared memory and in registers. All consumer threads call its methods together.
template <class P>
struct DecodeCombine {
  static constexpr uint32_t kBarrier = 1;
  static constexpr int kWarps = P::kConsumers / 32;
  static constexpr int kCells = P::kThreadCells;
  const AttentionParams& params;
  /// Shared [2, kKeyGroups + 2, kRows], double-buffered by parity: states of a chunk's key groups, of the
  /// group, of the row.
  float2* states;
  /// Shared [kCells, kConsumers]: O of the row's groups before this one; each thread has its own.
  float4* row;
  int* list;             ///< shared [kConsumers + 8]: PartialLayout::partial_at in order; counts of the warps
  const bool rehearses;  ///< nothing is stored in memory
  const int thread = static_cast<int>(threadIdx.x);
  int parity = 0, row_parity = 0;  ///< buffers of the newest group state, row state
  bool group_empty = true;         ///< the group has no chunk yet
  bool row_empty = true;           ///< the row has no group yet
  float4 group[kCells];            ///< O of the group

  static __device__ void barrier() { named_barrier_sync(kBarrier, P::kConsumers); }
  static __device__ float2 empty_state() { return make_float2(-INFINITY, 0); }

  /// Calls f(cell, row, column) for this thread's cells of a pass, four columns of a row each.
  template <class F>
  __device__ void for_cells_of_pass(int pass, int rows, F&& f) {
    const int before = pass % P::kTurns * P::kCells;  // threads whose turn is another
    if (thread < before) return;
#pragma unroll
    for (int c = 0; c < P::kPassCells; ++c) {
      const int i = thread - before + c * P::kConsumers, r = i / (P::kDv / 4);
      if (r < P::kPassRows && pass * P::kPassRows + r < rows)
        f(pass / P::kTurns * P::kPassCells + c, pass * P::kPassRows + r, i % (P::kDv / 4) * 4);
    }
  }
  template <class F>
  __device__ void for_cells(int rows, F&& f) {
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass)
      if (pass * P::kPassRows < rows) for_cells_of_pass(pass, rows, f);
  }

  __device__ float2* states_of(int which) const { return states + which * (P::kKeyGroups + 2) * P::kRows; }
  // Threads that share a row write the same value, and read the buffer of the other parity, which was written
  // before a barrier.
  __device__ float2& group_state(int which, int r) const {
    return states_of(which)[P::kKeyGroups * P::kRows + r];
  }
  __device__ float2& row_state(int which, int r) const {
    return states_of(which)[(P::kKeyGroups + 1) * P::kRows + r];
  }

  __device__ void begin_row() {
    begin_group();
    row_empty = true;
  }
  __device__ float4& row_cell(int cell) const { return row[cell * P::kConsumers + thread]; }
  __device__ void begin_group() {
    group_empty = true;
#pragma unroll
    for (int i = 0; i < kCells; ++i)
      group[i] = make_float4(0, 0, 0, 0);
  }

  /// Where column `column` of row `row` of a pass is in a row of the exchange: rows of a warp's store lie in
  /// other banks.
  static __device__ int exchange_column(int row, int column) { return column ^ row / 2 % 4 * 8; }

  /// Combines the results of all warps for a chunk and adds them to the group or, with `partial_group`,
  /// stores them as the partial result of the item's split. `last_tile`: memory of the chunk's last tile,
  /// which no warp reads after its call: kExchangeBuffers of [kKeyGroups, kPassRows, kDv]. `some`: there was
  /// a tile; otherwise the memory is not touched.
  __device__ void add_chunk(const WorkItem& item, int head, int rows, const DecodeTile<P>& tile,
                            const WarpPlace<P>& place, bool partial_group, float* last_tile, bool some) {
    const int g = place.lane / 4, q = place.lane % 4;
    parity ^= 1;
    float2* const state = states_of(parity);
#pragma unroll
    for (int i = 0; i < 2 * P::kRowGroups; ++i) {
      const int r = i / 2 * 8;
      if (r >= rows) break;
      const float total = column_sum(tile.row_sum[i / 2][i % 2]);
      if (g == 0 && place.part == 0)
        state[place.group * P::kRows + r + 2 * q + i % 2] = make_float2(tile.row_max[i / 2][i % 2], total);
    }
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      if (pass * P::kPassRows >= rows) break;
      // The tile, or the rows of the pass before the last one, have been read: the second barrier of a pass
      // says so of the one before.
      if (pass == 0 || P::kExchangeBuffers == 1) barrier();
      float* const exchange = last_tile + pass % P::kExchangeBuffers * (P::kExchangeBytes / 4);
      if (some) store_fragment(exchange, tile.o, pass, place);
      barrier();
      for_cells_of_pass(pass, rows, [&](int cell, int r, int column) {
        float2 sum = empty_state();
        float4 o = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < P::kKeyGroups; ++w)
          sum.x = fmaxf(sum.x, state[w * P::kRows + r].x);
        const float base = finite_max(sum.x);
#pragma unroll
        for (int w = 0; w < P::kKeyGroups; ++w) {
          const float2 s = state[w * P::kRows + r];
          const float f = planted_group_weight(exp2_approx(s.x - base), w, P::kKeyGroups);
          const int row = r % P::kPassRows;
          float4 y = make_float4(0, 0, 0, 0);
          if (some)
            y = *reinterpret_cast<const float4*>(exchange + (w * P::kPassRows + row) * P::kDv +
                                                 exchange_column(row, column));
          sum.y = fmaf(s.y, f, sum.y);
          o = make_float4(fmaf(y.x, f, o.x), fmaf(y.y, f, o.y), fmaf(y.z, f, o.z), fmaf(y.w, f, o.w));
        }
        if (partial_group) {
          store_partial(item, head, item.split, rows, r, column, o, sum);
        } else {
          const float2 before = group_empty ? empty_state() : group_state(parity ^ 1, r);
          const CombineFactors f(before.x, sum.x);
          group_state(parity, r) =
              combine_states(f, before, sum);  // all threads of the row write the same value
          group[cell] = combine(group[cell], f.first, o, f.second);
        }
      });
    }
    if (!partial_group) group_empty = false;
  }

  /// Stores this lane's columns of its two query rows of group h.
  static __device__ void store_fragment(float* exchange, const float (&o)[P::kPartDv / 16][P::kRowGroups][4],
                                        int h, const WarpPlace<P>& place) {
    const int g = place.lane / 4, q = place.lane % 4;
    float* const rows = exchange + (place.group * P::kPassRows + 2 * q) * P::kDv + place.part * P::kPartDv;
    // 32 columns on, the banks are the same.
#pragma unroll
    for (int odd = 0; odd < 2; ++odd)
#pragma unroll
      for (int half = 0; half < (P::kEightBit ? 1 : 2); ++half) {
        float* const to = rows + exchange_column(2 * q, 16 * odd + 8 * half + (P::kEightBit ? 2 * g : g));
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
          for (int j = 0; j < P::kPartDv / 32; ++j) {
            const float(&from)[4] = o[2 * j + odd][h];
            float* const at = to + e * P::kDv + 32 * j;
            if constexpr (P::kEightBit)
              *reinterpret_cast<float2*>(at) = make_float2(from[e], from[2 + e]);
            else
              *at = from[2 * half + e];
          }
      }
  }

  /// Adds the group, which has all its chunks, to the row.
  __device__ void add_group(int rows) {
    row_parity ^= 1;
    for_cells(rows, [&](int cell, int r, int) {
      const float2 before = row_empty ? empty_state() : row_state(row_parity ^ 1, r),
                   sum = group_state(parity, r);
      const CombineFactors f(before.x, sum.x);
      row_state(row_parity, r) = combine_states(f, before, sum);
      const float4 sum_before = row_empty ? make_float4(0, 0, 0, 0) : row_cell(cell);
      row_cell(cell) = combine(sum_before, f.first, group[cell], f.second);
    });
    begin_group();
    row_empty = false;
  }
  __device__ void store_group(const WorkItem& item, int head, int split, int rows) {
    for_cells(rows, [&](int cell, int r, int column) {
      store_partial(item, head, split, rows, r, column, group[cell], group_state(parity, r));
    });
    begin_group();
  }
  __device__ void store_row(const WorkItem& item, int head, int rows) {
    for_cells(rows, [&](int cell, int r, int column) {
      store_partial(item, head, 0, rows, r, column, row_cell(cell), row_state(row_parity, r));
    });
  }
  /// Normalises and stores the row, which has all its groups.
  __device__ void store_output(const WorkItem& item, int head, int rows) {
    for_cells(rows, [&](int cell, int r, int column) {
      const float2 sum = row_state(row_parity, r);
      finish<typename P::Q>(params, item, head, r, stored(column), row_cell(cell), sum.x,
                            sum_of(item, sum.y));
    });
  }

  /// The column for finish(), which stores nothing at v_head_dim.
  __device__ int stored(int column) const { return rehearses ? P::kDv : column; }

  /// Partial results of partial_rows rows that each split of a row tile has.
  __device__ int partials_of_split(int rows) const {
    return PartialRoom{0, params.partial_rows}.of_tile(rows);
  }
  __device__ void store_partial(const WorkItem& item, int head, int split, int rows, int r, int column,
                                const float4& o, const float2& state) const {
    if (rehearses) return;
    const int units = partials_of_split(rows);
    const int64_t at = partial_row(params, item.partial_first + split * units, head * units, r);
    __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), o);
    if (column == 0) store_state(params, at, state.x, state.y);
  }

  /// Called after this CTA has stored its partial results of a row tile. The last-arriving CTA combines the
  /// partial results of all CTAs and stores the rows. `landing`: shared memory for partial results,
  /// P::kRingBytes.
  __device__ void arrive_and_combine(const WorkItem& item, int head, int rows, const PartialLayout& layout,
                                     char* landing) {
    const int num_ctas = layout.num_ctas();
    uint32_t before = 0;
    barrier();
    if (thread == 0 && !rehearses)
      before =
          arrive(params.arrivals + static_cast<int64_t>(item.partial_first) * params.kv_heads.divisor + head,
                 num_ctas);
    // While the atomic is in flight: the list of the partial results, and the initial maxima of the group and
    // of the groups before it.
    const int leading = layout.leading_splits();
    int count = list_partials(layout, 0, leading);
    if (thread < rows) group_state(0, thread) = make_float2(-INFINITY, -INFINITY);
    if (thread == 0) list[P::kConsumers] = rehearses || is_last_arrival(before, num_ctas);
    barrier();
    if (list[P::kConsumers] == 0) return;
    begin_group();
    float4 total[kCells] = {};
    float2 totals[kCells] = {};
    const int partial_bytes = rows * (P::kDv * 4 + 24);
    const int max_count = min(P::kConsumers, (P::kRingBytes - 16) / partial_bytes);
#pragma unroll 1
    for (int first = 0; first < layout.num_splits; first += P::kConsumers) {
      if (first > 0) count = list_partials(layout, first, leading);
#pragma unroll 1
      for (int at = 0; at < count; at += max_count)
        combine_partials(item, head, rows, at, min(max_count, count - at), landing, total, totals);
    }
    for_cells(rows, [&](int cell, int r, int column) {
      finish<typename P::Q>(params, item, head, r, stored(column), total[cell], group_state(0, r).y,
                            totals[cell].y);
    });
  }

 private:
  /// Lists the partial results at splits [first, first + kConsumers) in order; returns how many there are.
  __device__ int list_partials(const PartialLayout& layout, int first, int leading) {
    const int partial = layout.partial_at(first + thread, leading);
    const unsigned exists = __ballot_sync(~0u, partial >= 0);
    const int warp = thread / 32;
    barrier();  // the previous list has been read
    if (thread % 32 == 0) list[P::kConsumers + warp] = __popc(exists);
    barrier();
    int before = __popc(exists & ((1u << thread % 32) - 1)), count = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int warp_count = list[P::kConsumers + w];
      if (w < warp) before += warp_count;
      count += warp_count;
    }
    if (partial >= 0) list[before] = partial;
    barrier();
    return count;
  }

  /// Combines the `count` listed partial results from `first` on with the group and the row. All of them are
  /// copied to `landing` first. `total`: O of the row; `totals`: row_sum of the group (x) and of the row (y).
  __device__ void combine_partials(const WorkItem& item, int head, int rows, int first, int count,
                                   char* landing, float4 (&total)[kCells], float2 (&totals)[kCells]) {
    constexpr int kColumns = P::kDv / 4;
    const int units = partials_of_split(rows);
    const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * params.partial_rows * units;
    const int64_t partial0 = partial_row(params, item.partial_first, head * units, 0);
    float4* const o = reinterpret_cast<float4*>(landing);
    float4* const factors = o + rows * count * kColumns;
    float2* const sums = reinterpret_cast<float2*>(factors + rows * count);
    const auto slot = [&](int i) {
      return partial0 + (list[first + i] & (PartialLayout::kLastOfGroup - 1)) * stride;
    };
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
    for_cells(rows, [&](int cell, int r, int column) {
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        const float4 f = factors[r * count + i];
        group[cell] = combine(group[cell], f.x, o[(r * count + i) * kColumns + column / 4], f.y);
        totals[cell].x = combine(totals[cell].x, f.x, sums[r * count + i].y, f.y);
        if ((list[first + i] & PartialLayout::kLastOfGroup) == 0) continue;
        total[cell] = combine(total[cell], f.z, group[cell], f.w);
        totals[cell].y = combine(totals[cell].y, f.z, totals[cell].x, f.w);
        group[cell] = make_float4(0, 0, 0, 0);
        totals[cell].x = 0;
      }
    });
    barrier();
  }

  /// Computes the factors of a row's partial results by a warp scan. x and y: of the group so far and of the
  /// partial result. z and w: of the groups before and of this group, if the partial result is the last of
  /// its group. `before`: the maxima of the group and of the groups before it; updated.
  __device__ void combine_factors(const int* partials, int count, const float2* sums, float4* factors,
                                  float2& before) {
    const int lane = thread % 32;
    float2 last = before;
#pragma unroll 1
    for (int at = 0; at < count; at += 32) {
      const bool exists = at + lane < count;
      const float maximum = exists ? sums[at + lane].x : -INFINITY;
      const bool last_of_group = exists && (partials[at + lane] & PartialLayout::kLastOfGroup) != 0;
      const unsigned below = __ballot_sync(~0u, last_of_group) & ((1u << lane) - 1);
      const int begin = 32 - __clz(below);  // lane of the group's first partial result
      float group = lane == 0 ? fmaxf(maximum, last.x) : maximum;
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const float other = __shfl_up_sync(~0u, group, d);
        if (lane - d >= begin) group = fmaxf(group, other);
      }
      const float group_before = __shfl_up_sync(~0u, group, 1);
      float all = last_of_group ? group : -INFINITY;
      if (lane == 0) all = fmaxf(all, last.y);
#pragma unroll
      for (int d = 1; d < 32; d *= 2) {
        const float other = __shfl_up_sync(~0u, all, d);
        if (lane >= d) all = fmaxf(all, other);
      }
      const float all_before = __shfl_up_sync(~0u, all, 1);
      const CombineFactors f(lane == 0 ? last.x : lane > begin ? group_before : -INFINITY, maximum);
      const CombineFactors g(lane == 0 ? last.y : all_before, group);
      if (exists)
        factors[at + lane] =
            make_float4(f.first, planted_combine_weight(f.second, at + lane, count), g.first, g.second);
      const int end = min(32, count - at) - 1;
      last.x = __shfl_sync(~0u, last_of_group ? -INFINITY : group, end);
      last.y = __shfl_sync(~0u, all, end);
    }
    __syncwarp();
    if (lane == 0) before = last;
  }
};

}  // namespace fovea::cuda::sm90
