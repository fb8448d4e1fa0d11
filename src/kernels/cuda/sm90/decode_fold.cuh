#pragma once
// From warps' results to rows, by a warpgroup of its own: chunks of keys become groups, and groups rows, by
// the same additions whether a block has all of a row's keys or several blocks leave parts, of which the last
// to come adds up what is left.
#include "kernels/cuda/sm80/decode_parts.cuh"
#include "kernels/cuda/sm90/decode_range.cuh"
#include "kernels/cuda/sm90/decode_tile.cuh"
#include "kernels/cuda/tiles/cp_async.cuh"

namespace fovea::cuda::sm90 {

/// Where warps leave their results of a chunk, kPassRows rows at a time.
template <class P>
struct ChunkSums {
  enum : uint32_t { kFree = 1, kFilled = 2, kSummers = 3 };  ///< barriers
  static constexpr uint32_t kAll = P::kConsumers + P::kSummers;
  float* rows;    ///< shared [kSums, kPassRows, kMergePitch]
  float2* state;  ///< shared [kSums, kRows]

  /// By all consumers, of `count` rows.
  __device__ void put(const DecodeTile<P>& tile, const WarpPlace<P>& place, int count) const {
    const int g = place.lane / 4, q = place.lane % 4;
    float total[2];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      total[h] = quad_sum(tile.sum[h]);
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      if (pass * P::kPassRows >= count) break;
      const int h = pass * P::kPassRows / 8 % 2, first = pass * P::kPassRows % 8;
      named_barrier_sync(kFree, kAll);
      if (pass == 0 && q == 0 && place.part == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          state[place.sum() * P::kRows + place.row_tile * 16 + i * 8 + g] = make_float2(tile.maximum[i], total[i]);
      }
      if (place.row_tile == pass * P::kPassRows / 16 && g >= first && g < first + P::kPassRows) {
        float* const to = rows + (place.sum() * P::kPassRows + g - first) * P::kMergePitch + place.part * P::kPartDv;
#pragma unroll
        for (int j = 0; j < P::kPartDv / 8; ++j) {
          if constexpr (!P::kEightBit) {
            *reinterpret_cast<float2*>(to + 8 * j + 2 * q) = make_float2(tile.o[j][2 * h], tile.o[j][2 * h + 1]);
          } else if (j % 2 == 0) {  // even dims in o[j], odd ones in o[j + 1]
            *reinterpret_cast<float4*>(to + 8 * j + 4 * q) =
                make_float4(tile.o[j][2 * h], tile.o[j + 1][2 * h], tile.o[j][2 * h + 1], tile.o[j + 1][2 * h + 1]);
          }
        }
      }
      named_barrier_arrive(kFilled, kAll);
    }
  }
};

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
  enum : int { kCloses = 1 << 30, kWhole = 1 << 29 };

  const GangDivision& division;
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
    const int end = min(count, division.first(division.gang_of(item) + 1) - item);
    return max(0, end - (chunk + end) % group_chunks);
  }
  __device__ int pieces() const { return division.gang_of(item + count - 1) - division.gang_of(item) + 1; }
  /// The part at a split, below 0 if there is none: kWhole, if of whole groups; kCloses, if the last of its
  /// group.
  __device__ int part(int split, int whole) const {
    if (split >= count) return -1;
    if (split == 0 && whole > 0) return kWhole;
    if (split < whole) return -1;
    const int gang = division.gang_of(item + split), group = group_first(split);
    const bool loose = division.first(gang) - item > group;
    if (!loose && split != group) return -1;
    const int end = loose ? split + 1 : division.first(gang + 1) - item;
    return split | (end >= group_end(split) ? kCloses : 0);
  }
};

template <class P>
struct DecodeFold {
  static constexpr int kCells = P::kPasses * P::kPassCells;
  const AttentionParams& params;
  const ChunkSums<P>& sums;
  int* list;  ///< shared [kSummers + 8]
  const int thread = static_cast<int>(threadIdx.x) % P::kSummers;
  char* cells;  ///< shared [1 or 2, kCells, kSummers, 24 bytes]: a thread's own sums of groups, and of the group
  FoldCell group_registers[P::kGroupShared ? 1 : kCells];

  static __device__ void barrier() { named_barrier_sync(ChunkSums<P>::kSummers, P::kSummers); }

  /// Calls f(cell, row, column) for this thread's cells of a pass.
  template <class F>
  __device__ void each_of(int pass, int rows, F&& f) {
#pragma unroll
    for (int c = 0; c < P::kPassCells; ++c) {
      const int i = thread + c * P::kSummers, r = i / (P::kDv / 4);
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

  __device__ void begin() {
#pragma unroll
    for (int i = 0; i < kCells; ++i)
      set_group(i, FoldCell{}), set(i, FoldCell{});
  }
  __device__ FoldCell get(int cell) const {
    const int i = cell * P::kSummers + thread;
    const float2 s = reinterpret_cast<const float2*>(cells + P::kCellBytes / 3 * 2)[i];
    return {reinterpret_cast<const float4*>(cells)[i], s.x, s.y};
  }
  __device__ void set(int cell, const FoldCell& x) const {
    const int i = cell * P::kSummers + thread;
    reinterpret_cast<float4*>(cells)[i] = x.o;
    reinterpret_cast<float2*>(cells + P::kCellBytes / 3 * 2)[i] = make_float2(x.maximum, x.sum);
  }
  __device__ FoldCell group(int cell) const {
    if constexpr (P::kGroupShared) return get(kCells + cell);
    return group_registers[P::kGroupShared ? 0 : cell];
  }
  __device__ void set_group(int cell, const FoldCell& x) {
    if constexpr (P::kGroupShared)
      set(kCells + cell, x);
    else
      group_registers[cell] = x;
  }
  __device__ void add_to_group(int cell, const FoldCell& x) {
    FoldCell sum = group(cell);
    fold(sum, x);
    set_group(cell, sum);
  }
  /// The group of this cell has no more chunks of the row.
  __device__ void close(int cell) {
    FoldCell x = get(cell);
    fold(x, group(cell));
    set(cell, x);
    set_group(cell, FoldCell{});
  }

  /// A chunk's result of all warps, to the groups' sums or, `loose`, to the part of the item's split.
  __device__ void chunk(const WorkItem& item, int head, int rows, bool loose) {
#pragma unroll
    for (int pass = 0; pass < P::kPasses; ++pass) {
      if (pass * P::kPassRows >= rows) break;
      named_barrier_arrive(ChunkSums<P>::kFree, ChunkSums<P>::kAll);
      named_barrier_sync(ChunkSums<P>::kFilled, ChunkSums<P>::kAll);
      each_of(pass, rows, [&](int cell, int r, int column) {
        FoldCell x;
#pragma unroll
        for (int w = 0; w < P::kSums; ++w)
          x.maximum = fmaxf(x.maximum, sums.state[w * P::kRows + r].x);
        const float base = finite_max(x.maximum);
#pragma unroll
        for (int w = 0; w < P::kSums; ++w) {
          const float2 s = sums.state[w * P::kRows + r];
          const float f = exp2_approx(s.x - base);
          const float4 y = *reinterpret_cast<const float4*>(
              sums.rows + (w * P::kPassRows + r % P::kPassRows) * P::kMergePitch + column);
          x.sum = fmaf(s.y, f, x.sum);
          x.o = make_float4(fmaf(y.x, f, x.o.x), fmaf(y.y, f, x.o.y), fmaf(y.z, f, x.o.z), fmaf(y.w, f, x.o.w));
        }
        if (loose)
          store(item, head, item.split, r, column, x);
        else
          add_to_group(cell, x);
      });
    }
  }

  /// The group has no more chunks of the row.
  __device__ void end_group(int rows) {
    each(rows, [&](int cell, int, int) { close(cell); });
  }
  __device__ void store_group(const WorkItem& item, int head, int split, int rows) {
    each(rows, [&](int cell, int r, int column) {
      store(item, head, split, r, column, group(cell));
      set_group(cell, FoldCell{});
    });
  }
  __device__ void store_row(const WorkItem& item, int head, int rows) {
    each(rows, [&](int cell, int r, int column) { store(item, head, 0, r, column, get(cell)); });
  }
  __device__ void finish(const WorkItem& item, int head, int rows) {
    each(rows, [&](int cell, int r, int column) {
      const FoldCell x = get(cell);
      sm80::finish<typename P::Q>(params, item, head, r, column, x.o, x.maximum, x.sum);
    });
  }

  __device__ void store(const WorkItem& item, int head, int split, int r, int column, const FoldCell& x) const {
    const int64_t at = sm80::partial_row(params, item.partial_first + split, head, r);
    __stcg(reinterpret_cast<float4*>(params.partial_out + at * P::kDv + column), x.o);
    if (column == 0) sm80::store_state(params, at, x.maximum, x.sum);
  }

  /// After this block's parts of a row tile: the last of the blocks to come here adds all of them up.
  /// `landing`: shared, P::kRingBytes.
  __device__ void arrive(const WorkItem& item, int head, int rows, const PartWalk& walk, char* landing) {
    barrier();
    if (thread == 0)
      list[P::kSummers] = sm80::arrive_last(
          params.arrivals + static_cast<int64_t>(item.partial_first) * params.kv_heads.divisor + head, walk.pieces());
    barrier();
    if (list[P::kSummers] == 0) return;
    begin();
    const int whole = walk.head();
    const int part_bytes = rows * (P::kDv * 4 + 8), most = min(P::kSummers, (P::kRingBytes - 16) / part_bytes);
#pragma unroll 1
    for (int first = 0; first < walk.count; first += P::kSummers) {
      const int count = list_parts(walk, first, whole);
#pragma unroll 1
      for (int at = 0; at < count; at += most)
        add_parts(item, head, rows, at, min(most, count - at), landing);
    }
    finish(item, head, rows);
  }

 private:
  /// Lists the parts at kSummers splits in order.
  __device__ int list_parts(const PartWalk& walk, int first, int whole) {
    const int part = walk.part(first + thread, whole);
    const unsigned some = __ballot_sync(~0u, part >= 0);
    const int warp = thread / 32;
    barrier();  // the list has been read
    if (thread % 32 == 0) list[P::kSummers + warp] = __popc(some);
    barrier();
    int before = __popc(some & ((1u << thread % 32) - 1)), count = 0;
#pragma unroll
    for (int w = 0; w < P::kSummers / 32; ++w) {
      const int of = list[P::kSummers + w];
      if (w < warp) before += of;
      count += of;
    }
    if (part >= 0) list[before] = part;
    barrier();
    return count;
  }

  /// Adds listed parts first, ... (`count` of them) to the sums. They come through `landing`, all at a time.
  __device__ void add_parts(const WorkItem& item, int head, int rows, int first, int count, char* landing) {
    constexpr int kColumns = P::kDv / 4;
    const int64_t stride = static_cast<int64_t>(params.kv_heads.divisor) * params.partial_rows;
    const int64_t part0 = sm80::partial_row(params, item.partial_first, head, 0);
    float2* const states = reinterpret_cast<float2*>(landing);
    float4* const o = reinterpret_cast<float4*>(landing + (rows * count * 8 + 15) / 16 * 16);
    const auto slot = [&](int i) { return part0 + (list[first + i] & (PartWalk::kWhole - 1)) * stride; };
#pragma unroll 1
    for (int r = 0; r < rows; ++r) {
      for (int i = thread; i < count * kColumns; i += P::kSummers)
        cp_async_16(shared_address(o + r * count * kColumns + i),
                    params.partial_out + (slot(i / kColumns) + r) * P::kDv + i % kColumns * 4);
      for (int i = thread; i < count; i += P::kSummers)
        cp_async_8(shared_address(states + r * count + i), params.partial_state + slot(i) + r);
    }
    cp_async_wait_all();
    barrier();
    each(rows, [&](int cell, int r, int column) {
#pragma unroll 2
      for (int i = 0; i < count; ++i) {
        const float2 s = states[r * count + i];
        const FoldCell x{o[(r * count + i) * kColumns + column / 4], s.x, s.y};
        const int part = list[first + i];
        if ((part & PartWalk::kWhole) != 0) {
          set(cell, x);
          continue;
        }
        add_to_group(cell, x);
        if ((part & PartWalk::kCloses) != 0) close(cell);
      }
    });
    barrier();
  }
};

}  // namespace fovea::cuda::sm90
