#pragma once
// From warps' results to rows: chunks of keys become groups, and groups rows, by the same additions whether a
// block has all of a row's keys or several blocks leave parts, of which the last to come adds up what is left.
#include "kernels/cuda/sm80/decode_parts.cuh"
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/sm90/decode_tile.cuh"

namespace fovea::cuda::sm90 {

/// Four columns of a row over some keys: O unnormalised, relative to 2^maximum.
struct FoldCell {
  float4 o = {0, 0, 0, 0};
  float maximum = -INFINITY, sum = 0;
};

/// `a` and what comes after it. No keys change nothing.
__device__ __forceinline__ void fold(FoldCell& a, const FoldCell& b) {
  if (b.maximum == -INFINITY && b.sum == 0.0f) return;
  const float top = fmaxf(a.maximum, b.maximum), base = finite_max(top);
  const float x = exp2_approx(a.maximum - base), y = exp2_approx(b.maximum - base);
  a.maximum = top;
  a.sum = fmaf(a.sum, x, __fmul_rn(b.sum, y));
  a.o.x = fmaf(a.o.x, x, __fmul_rn(b.o.x, y)), a.o.y = fmaf(a.o.y, x, __fmul_rn(b.o.y, y));
  a.o.z = fmaf(a.o.z, x, __fmul_rn(b.o.z, y)), a.o.w = fmaf(a.o.w, x, __fmul_rn(b.o.w, y));
}

/// Where the parts of a row tile lie: at the index of the split that they begin with. The block that has the
/// first splits leaves the sum of its whole groups at 0. Others, and it after those, leave sums of what they
/// have of a group from its first split on; where they come into a group later they leave each split.
struct PartWalk {
  const GangDivision& division;
  int item;         ///< of split 0
  int chunk;        ///< number of split 0's chunk
  int count;        ///< splits
  int group_chunks;

  __device__ int group_end(int split) const {
    return min(count, split + group_chunks - (chunk + split) % group_chunks);
  }
  /// Past the last split of the block that has `split`.
  __device__ int piece_end(int split) const {
    return min(count, division.first(division.gang_of(item + split) + 1) - item);
  }
  /// How many splits the first part stands for, if it is of whole groups.
  __device__ int head() const {
    const int end = piece_end(0);
    return max(0, end - (chunk + end) % group_chunks);
  }
};

template <class P>
struct DecodeFold {
  static constexpr int kCells = P::kPasses * P::kPassCells;
  const AttentionParams& params;
  float* merge;   ///< shared [kKeyGroups, kPassRows, kMergePitch]
  float2* state;  ///< shared [2, kKeyGroups, kRows]
  int* last;      ///< shared
  FoldCell group[kCells], row[kCells];
  int parity = 0;

  static __device__ void barrier() { named_barrier_sync(1, P::kConsumers); }

  /// Calls f(cell, row, column) for this thread's cells.
  template <class F>
  static __device__ void each(int rows, F&& f) {
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass)
      if (pass * P::kPassRows < rows) each_of(pass, rows, f);
  }
  template <class F>
  static __device__ void each_of(int pass, int rows, F&& f) {
#pragma unroll
    for (int c = 0; c < P::kPassCells; ++c) {
      const int i = static_cast<int>(threadIdx.x) + c * P::kConsumers;
      const int r = i / (P::kDv / 4);
      if (r < P::kPassRows && pass * P::kPassRows + r < rows)
        f(pass * P::kPassCells + c, pass * P::kPassRows + r, i % (P::kDv / 4) * 4);
    }
  }

  __device__ void begin() {
#pragma unroll
    for (int i = 0; i < kCells; ++i)
      group[i] = row[i] = FoldCell{};
  }

  /// A chunk's result of all warps, to the groups' sums or, `loose`, to part `part`.
  __device__ void chunk(const WorkItem& item, int head, int rows, const DecodeTile<P>& tile,
                        const WarpPlace<P>& place, bool loose) {
    const int g = place.lane / 4, q = place.lane % 4;
    parity ^= 1;
    float2* const states = state + parity * P::kKeyGroups * P::kRows;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = quad_sum(tile.sum[h]);
      if (q == 0 && place.part == 0)
        states[place.group * P::kRows + place.row_tile * 16 + h * 8 + g] = make_float2(tile.maximum[h], total);
    }
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      if (pass * P::kPassRows >= rows) break;
      barrier();  // the rows before have been read
      if (place.row_tile == pass / 2 && pass * P::kPassRows + g < rows)
        put(merge + (place.group * P::kPassRows + g) * P::kMergePitch + place.part * P::kPartDv, tile.o, pass % 2);
      barrier();
      each_of(pass, rows, [&](int cell, int r, int column) {
        FoldCell x;
#pragma unroll
        for (int w = 0; w < P::kKeyGroups; ++w)
          x.maximum = fmaxf(x.maximum, states[w * P::kRows + r].x);
        const float base = finite_max(x.maximum);
#pragma unroll
        for (int w = 0; w < P::kKeyGroups; ++w) {
          const float2 s = states[w * P::kRows + r];
          const float f = exp2_approx(s.x - base);
          const float4 y = *reinterpret_cast<const float4*>(
              merge + (w * P::kPassRows + r % P::kPassRows) * P::kMergePitch + column);
          x.sum = fmaf(s.y, f, x.sum);
          x.o = make_float4(fmaf(y.x, f, x.o.x), fmaf(y.y, f, x.o.y), fmaf(y.z, f, x.o.z), fmaf(y.w, f, x.o.w));
        }
        if (loose)
          store(item, head, item.split, r, column, x);
        else
          fold(group[cell], x);
      });
    }
  }

  /// This lane's columns of a row.
  static __device__ void put(float* to, const float (&o)[P::kPartDv / 8][4], int h) {
    const int q = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int j = 0; j < P::kPartDv / 8; ++j) {
      if constexpr (!P::kEightBit) {
        *reinterpret_cast<float2*>(to + 8 * j + 2 * q) = make_float2(o[j][2 * h], o[j][2 * h + 1]);
      } else if (j % 2 == 0) {  // even dims in o[j], odd ones in o[j + 1]
        *reinterpret_cast<float4*>(to + 8 * j + 4 * q) =
            make_float4(o[j][2 * h], o[j + 1][2 * h], o[j][2 * h + 1], o[j + 1][2 * h + 1]);
      }
    }
  }

  /// The group has no more chunks of the row.
  __device__ void end_group(int rows) {
    each(rows, [&](int cell, int, int) {
      fold(row[cell], group[cell]);
      group[cell] = FoldCell{};
    });
  }
  __device__ void store_group(const WorkItem& item, int head, int split, int rows) {
    each(rows, [&](int cell, int r, int column) {
      store(item, head, split, r, column, group[cell]);
      group[cell] = FoldCell{};
    });
  }
  __device__ void store_row(const WorkItem& item, int head, int rows) {
    each(rows, [&](int cell, int r, int column) { store(item, head, 0, r, column, row[cell]); });
  }
  __device__ void finish(const WorkItem& item, int head, int rows) {
    each(rows, [&](int cell, int r, int column) {
      sm80::finish<typename P::Q>(params, item, head, r, column, row[cell].o, row[cell].maximum, row[cell].sum);
    });
  }

  __device__ void store(const WorkItem& item, int head, int split, int r, int column, const FoldCell& x) const {
    const int64_t at = sm80::partial_row(params, item.partial_first + split, head, r);
    __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), x.o);
    if (column == 0) sm80::store_state(params, at, x.maximum, x.sum);
  }

  /// After this block's parts of a row tile: the last of the blocks to come here has `pieces` of them and
  /// writes the rows.
  __device__ void arrive(const WorkItem& item, int head, int rows, const PartWalk& walk, int pieces) {
    barrier();
    if (threadIdx.x == 0)
      *last = sm80::arrive_last(
          params.arrivals + static_cast<int64_t>(item.partial_first) * params.kv_heads.divisor + head, pieces);
    barrier();
    if (*last == 0) return;
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass)
      if (pass * P::kPassRows < rows) {
#pragma unroll
        for (int c = 0; c < P::kPassCells; ++c) {
          const int i = static_cast<int>(threadIdx.x) + c * P::kConsumers, r = pass * P::kPassRows + i / (P::kDv / 4);
          if (i / (P::kDv / 4) < P::kPassRows && r < rows) sum_parts(item, head, r, i % (P::kDv / 4) * 4, walk);
        }
      }
  }

 private:
  __device__ void sum_parts(const WorkItem& item, int head, int r, int column, const PartWalk& walk) const {
    constexpr int kLoads = 8;
    const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * params.partial_rows;
    const int64_t first = sm80::partial_row(params, item.partial_first, head, r);
    FoldCell all, group;
    const int begun = walk.head();
    int next = 0, end = begun;  // the next part, and the end of its group
    bool whole = begun > 0;     // the next part is a sum of groups
    if (!whole) end = walk.group_end(0);
    bool opens = true;  // the next part is the first of its group
    while (next < walk.count) {
      FoldCell x[kLoads];
      int closes = 0, count = 0;
      int whole_at = -1;
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        if (next < walk.count) {
          const int64_t at = first + next * stride;
          const float2 s = sm80::load_state(params, at);
          x[u].maximum = s.x, x[u].sum = s.y;
          x[u].o = __ldcg(reinterpret_cast<const float4*>(params.partial_out + at * P::kDv + column));
          ++count;
          if (whole) {
            whole_at = u, whole = false;
            next = end;
          } else {
            next = opens ? min(end, walk.piece_end(next)) : next + 1;
          }
          opens = next >= end;
          if (opens) {
            closes |= 1 << u;
            if (next < walk.count) end = walk.group_end(next);
          }
        }
      }
#pragma unroll
      for (int u = 0; u < kLoads; ++u) {
        if (u >= count) break;
        if (u == whole_at) {
          all = x[u];
          continue;
        }
        fold(group, x[u]);
        if (closes >> u & 1) {
          fold(all, group);
          group = FoldCell{};
        }
      }
    }
    sm80::finish<typename P::Q>(params, item, head, r, column, all.o, all.maximum, all.sum);
  }
};

}  // namespace fovea::cuda::sm90
