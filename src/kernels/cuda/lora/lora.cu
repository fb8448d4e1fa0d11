#include "kernels/cuda/lora/lora.h"

#include <algorithm>
#include <climits>
#include <string>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_stream.h"
#include "fovea/result.h"
#include "kernels/cuda/linear/epilogue.cuh"
#include "kernels/cuda/lora/slots.cuh"
#include "kernels/cuda/rows/four.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/mma.cuh"

namespace fovea::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kWarpInputs = kLoraInputs / kWarps, kChunks = kWarpInputs / 32;
constexpr int kShrinkRanks = 16, kShrinkStride = kShrinkRanks + 1;
constexpr int kGroups = 8, kWarpColumns = 8 * kGroups;
static_assert(kWarps * kWarpColumns == kLoraColumns);
constexpr int kFloatThreads = 256;
constexpr int kMostGroups = 4;  // of 16 ranks that CTAs share; each takes further ones in turn

/// Eight inputs of a row, zeros from k on.
template <class T>
FOVEA_DEVICE uint4 load_eight(const T* row, int at, int k) {
  if (at + 8 <= k) return __ldcg(reinterpret_cast<const uint4*>(row + at));
  uint32_t words[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto* halves = reinterpret_cast<const uint16_t*>(row);
    if (at + 2 * i < k) words[i] = __ldcg(halves + at + 2 * i);
    if (at + 2 * i + 1 < k) words[i] |= static_cast<uint32_t>(__ldcg(halves + at + 2 * i + 1)) << 16;
  }
  return {words[0], words[1], words[2], words[3]};
}

/// Eight weights of row `row` of A from input `at` on.
template <class T>
FOVEA_DEVICE uint4 load_weights(const LoraArgs& p, const LoraSlot<T>& slot, int row, int at) {
  if (row >= p.modules * slot.rank || at >= p.a_stride) return uint4{};
  return __ldg(reinterpret_cast<const uint4*>(slot.a + static_cast<int64_t>(row) * p.a_stride + at));
}

/// d += x A^T of 128 inputs from `first` on and the 16 ranks from `first_rank` on. Lane q of a quad holds
/// inputs 8 q to 8 q + 7 of each 32, for two steps of k16: which input is which k of a step does not matter,
/// as long as both operands agree.
template <class T>
FOVEA_DEVICE void multiply_inputs(const LoraArgs& p, const LoraSlot<T>& slot, const T* const (&row)[2],
                                  int first, int first_rank, float (&d)[2][4]) {
  const int g = lane_id() / 4, at = first + 8 * (lane_id() % 4);
  uint4 w[2][kChunks], x[2][kChunks] = {};
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      w[h][c] = load_weights(p, slot, first_rank + g + 8 * h, at + 32 * c);
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      if (row[h] != nullptr && at + 32 * c < p.k) x[h][c] = load_eight(row[h], at + 32 * c, p.k);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const uint32_t even[4] = {x[0][c].x, x[1][c].x, x[0][c].y, x[1][c].y};
    const uint32_t odd[4] = {x[0][c].z, x[1][c].z, x[0][c].w, x[1][c].w};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Mma<T>::k16(d[h], even, w[h][c].x, w[h][c].y);
      Mma<T>::k16(d[h], odd, w[h][c].z, w[h][c].w);
    }
  }
}

/// Part `part` of x A^T of a tile; of its groups of 16 ranks, `first_group` and each `groups`-th after it.
template <class T>
FOVEA_DEVICE void shrink(const LoraArgs& p, const LoraSlot<T>& slot, int part, int first_group, int groups,
                         float (&sums)[kLoraRows][kShrinkStride]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, g = lane_id() / 4, q = lane_id() % 4;
  const int ranks = p.modules * slot.rank;
  const T* row[2];
#pragma unroll
  for (int h = 0; h < 2; ++h)
    row[h] = g + 8 * h < slot.rows ? static_cast<const T*>(p.x) + p.order[slot.first + g + 8 * h] * p.x_stride
                                   : nullptr;
#pragma unroll 1
  for (int first_rank = first_group * kShrinkRanks; first_rank < ranks; first_rank += groups * kShrinkRanks) {
    float d[2][4] = {};
#pragma unroll 1
    for (int first = part * kLoraInputs + warp * kWarpInputs; first < p.k; first += kLoraParts * kLoraInputs)
      multiply_inputs(p, slot, row, first, first_rank, d);
#pragma unroll 1
    for (int turn = 0; turn < kWarps; ++turn) {
      if (warp == turn) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float& sum = sums[g + i / 2 * 8][8 * h + 2 * q + i % 2];
            sum = turn == 0 ? d[h][i] : __fadd_rn(sum, d[h][i]);
          }
      }
      __syncthreads();
    }
    for (int i = static_cast<int>(threadIdx.x); i < slot.rows * kShrinkRanks; i += kThreads) {
      const int rank = i % kShrinkRanks;
      if (first_rank + rank < ranks)
        *low_of(p, slot.first + i / kShrinkRanks, part, first_rank + rank) = sums[i / kShrinkRanks][rank];
    }
    __syncthreads();
  }
}

/// D = A B + D, A [16, 8] and B [8, 8] of tf32: a[0] = (row g; k q), a[1] = (g + 8; same k), a[2] = (g; q +
/// 4), a[3] = (g + 8; q + 4); b0 = (k q; column g), b1 = (q + 4; g).
FOVEA_DEVICE void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

FOVEA_DEVICE uint32_t to_tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return y;
}

/// Ranks of a product's step; shared memory for x A^T of that many, twice: little enough for a CTA to start
/// beside one of the linear layer in front, whose ring leaves 3 KiB.
constexpr int kStepRanks = 16, kStepStride = kStepRanks + 4;
using LowStep = float[kLoraRows][kStepStride];

/// Sums the parts of a module's x A^T, ranks `first` to `first + 15`, and scales them. What rows and ranks
/// don't exist have is left as it is: a product's rows do not depend on each other.
template <class T>
FOVEA_DEVICE void gather_low(const LoraArgs& p, const LoraSlot<T>& slot, int module, int first, LowStep& to) {
  constexpr int kRowsOfPass = kThreads / kStepRanks, kPasses = kLoraRows / kRowsOfPass, kBatch = 4;
  const int rank = static_cast<int>(threadIdx.x) % kStepRanks,
            from_row = static_cast<int>(threadIdx.x) / kStepRanks;
  if (first + rank >= slot.rank) return;
  const float scale = slot.scale_of(module);
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = from_row + pass * kRowsOfPass;
    if (row >= slot.rows) return;
    const float* from = low_of(p, slot.first + row, 0, module * slot.rank + first + rank);
    float sum = 0.0f;
#pragma unroll 1
    for (int part = 0; part < p.parts; part += kBatch) {  // loads of a batch do not wait for each other
      float v[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        v[i] = part + i < p.parts ? __ldcg(from + (part + i) * p.low_stride) : 0.0f;
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (part + i < p.parts) sum = part + i == 0 ? v[i] : __fadd_rn(sum, v[i]);
    }
    to[row][rank] = __fmul_rn(sum, scale);
  }
}

/// Output `column` (0 to 7) of group j of a warp's 8 kCount: in the product's result, lane q then has 2
/// kCount outputs in a row, from 2 kCount q on, the values i of group j at 2 j + i.
template <int kCount>
FOVEA_DEVICE int output_of(int column, int j) {
  return column / 2 * 2 * kCount + 2 * j + column % 2;
}

/// A lane's elements of B for 16 ranks from `rank` on and 8 kCount outputs, of which the first is row `first`
/// of B and those from `end` on do not exist.
template <class T, int kCount>
struct LoraColumnWeights {
  uint32_t w[2][kCount] = {};

  FOVEA_DEVICE void load(const LoraSlot<T>& slot, int first, int end, int rank) {
    const int g = lane_id() / 4, q = lane_id() % 4, output = first + output_of<kCount>(g, 0);
    const T* b = slot.b + static_cast<int64_t>(output) * slot.rank + rank + 2 * q;
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        w[s][j] = rank + 8 * s < slot.rank && output + 2 * j < end
                      ? __ldg(reinterpret_cast<const uint32_t*>(b + 2 * j * slot.rank + 8 * s))
                      : 0u;
  }
};

/// acc += low B^T of the warp's 16 rows and 16 ranks, of which `ranks` exist.
template <class T, int kCount>
FOVEA_DEVICE void expand(const LowStep& low, int ranks, const LoraColumnWeights<T, kCount>& weights,
                         float (&acc)[kCount][4]) {
  const int g = lane_id() / 4, q = lane_id() % 4;
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    if (8 * s >= ranks) break;
    const float2 even = *reinterpret_cast<const float2*>(&low[g][8 * s + 2 * q]);
    const float2 odd = *reinterpret_cast<const float2*>(&low[g + 8][8 * s + 2 * q]);
    const float value[4] = {even.x, odd.x, even.y, odd.y};
    uint32_t high[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      high[i] = to_tf32(value[i]);
      rest[i] = to_tf32(__fadd_rn(value[i], -__uint_as_float(high[i])));
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float2 both = unpack<T>(weights.w[s][j]);
      mma_tf32(acc[j], high, __float_as_uint(both.x), __float_as_uint(both.y));
      mma_tf32(acc[j], rest, __float_as_uint(both.x), __float_as_uint(both.y));
    }
  }
}

/// kCount outputs in a row, 16 bytes at a time if `wide`, those from `left` on do not exist.
template <class T, int kCount>
FOVEA_DEVICE void load_outputs(const T* from, bool wide, int left, float (&v)[kCount]) {
  if (wide && left >= kCount) {
#pragma unroll
    for (int i = 0; i < kCount; i += 8) {
      const uint4 eight = *reinterpret_cast<const uint4*>(from + i);
      const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 both = unpack<T>(words[j]);
        v[i + 2 * j] = both.x, v[i + 2 * j + 1] = both.y;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      v[i] = i < left ? widened(from[i]) : 0.0f;
  }
}
template <class T, int kCount>
FOVEA_DEVICE void store_outputs(T* to, bool wide, int left, const float (&v)[kCount]) {
  if (wide && left >= kCount) {
#pragma unroll
    for (int i = 0; i < kCount; i += 8)
      *reinterpret_cast<uint4*>(to + i) = uint4{pack<T>(v[i], v[i + 1]), pack<T>(v[i + 2], v[i + 3]),
                                                pack<T>(v[i + 4], v[i + 5]), pack<T>(v[i + 6], v[i + 7])};
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i < left) to[i] = rounded<T>(v[i]);
  }
}

/// The rows of a tile that the lane's accumulators belong to; -1 = there is none.
template <class T>
struct TileRows {
  int row[2];

  FOVEA_DEVICE TileRows(const LoraArgs& p, const LoraSlot<T>& slot) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = lane_id() / 4 + 8 * h;
      row[h] = at < slot.rows ? p.order[slot.first + at] : -1;
    }
  }
};

/// Shared memory of a CTA: little enough to start beside one of the linear layer in front, whose ring leaves
/// 4 KiB.
union LoraShared {
  float sums[kLoraRows][kShrinkStride];
  LowStep low[2];
};

/// CTAs of a tile: the first `shrinks` compute x A^T, the others wait for these.
template <class T>
struct LoraCta {
  LoraSlot<T> slot;
  int tile, index;

  FOVEA_DEVICE LoraCta(const LoraArgs& p, int first_tile, int ctas_of_tile)
      : LoraCta(p, first_tile + static_cast<int>(blockIdx.x) / ctas_of_tile,
                static_cast<int>(blockIdx.x) % ctas_of_tile, 0) {}

  FOVEA_DEVICE void run_shrink(const LoraArgs& p, float (&sums)[kLoraRows][kShrinkStride]) const {
    if (!slot.adapts()) return;
    if (!p.early_input) grid_dependency_wait();
    const int groups = p.shrinks / p.parts;
    shrink(p, slot, index / groups, index % groups, groups, sums);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(p.counters + 2 * tile, 1);
  }

  /// Waits for the tile's x A^T if `needed`. The last of `others` CTAs that have got here resets the
  /// counters.
  FOVEA_DEVICE void await_shrink(const LoraArgs& p, bool needed, int others) const {
    if (threadIdx.x == 0) {
      int* const counter = p.counters + 2 * tile;
      if (needed) {
        int done = 0;
        while (true) {
          asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(done) : "l"(counter) : "memory");
          if (done >= p.shrinks) break;
          __nanosleep(64);
        }
      }
      if (atomicAdd(counter + 1, 1) + 1 == others) counter[0] = counter[1] = 0;
    }
    __syncthreads();
  }

 private:
  FOVEA_DEVICE LoraCta(const LoraArgs& p, int tile_, int index_, int)
      : slot(p, tile_), tile(tile_), index(index_) {}
};

/// A CTA: a tile and 256 outputs of one module. `wide`: modules begin at multiples of 16 bytes of y.
template <class T>
__global__ __launch_bounds__(kThreads) void lora_expand_kernel(LoraArgs p, T* y, int64_t y_stride, int blocks,
                                                               bool wide) {
  __shared__ LoraShared shared;
  grid_launch_dependents();
  const LoraCta<T> cta(p, 0, p.shrinks + blocks);
  const LoraSlot<T>& slot = cta.slot;
  if (cta.index < p.shrinks) return cta.run_shrink(p, shared.sums);
  const LoraColumns columns(p, cta.index - p.shrinks);
  const bool busy = slot.rows > 0 && slot.slot >= 0 && slot.scale_of(columns.index) != 0.0f;
  const int first = columns.first + static_cast<int>(threadIdx.x) / 32 * kWarpColumns;
  const int column = first + 2 * kGroups * (lane_id() % 4), left = columns.end - column;
  // What the slots and the step's arrays hold is older than the kernels in front.
  const TileRows<T> rows(p, slot);
  LoraColumnWeights<T, kGroups> weights;
  if (busy) weights.load(slot, first, columns.end, 0);
  if (!p.early_input) grid_dependency_wait();
  if (slot.adapts()) cta.await_shrink(p, busy, blocks);
  float acc[kGroups][4] = {};
#pragma unroll 1
  for (int rank = 0; busy && rank < slot.rank; rank += kStepRanks) {
    LowStep& step = shared.low[rank / kStepRanks % 2];  // the other one may still be read
    gather_low(p, slot, columns.index, rank, step);
    LoraColumnWeights<T, kGroups> next;
    if (rank + kStepRanks < slot.rank) next.load(slot, first, columns.end, rank + kStepRanks);
    __syncthreads();
    expand(step, slot.rank - rank, weights, acc);
    weights = next;
  }
  if (!busy && cta.tile > 0) return;  // those of the first tile wait: the kernel ends after those in front
  grid_dependency_wait();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (!busy || rows.row[h] < 0) continue;
    T* const to = y + rows.row[h] * y_stride + column;
    float v[2 * kGroups];
    load_outputs(to, wide, left, v);
#pragma unroll
    for (int i = 0; i < 2 * kGroups; ++i)
      v[i] = __fadd_rn(v[i], acc[i / 2][2 * h + i % 2]);
    store_outputs(to, wide, left, v);
  }
}

struct GatedArgs {
  const float* sums;
  const float *scales, *bias;
  int64_t stride;
  int first_row, first_tile, num_tiles;
  bool interleaved;  // and then eight columns are 16-byte aligned
  EpilogueParams e;
};

constexpr int kGatedGroups = 4, kGatedColumns = kWarps * 8 * kGatedGroups;

/// Eight gates and their ups from `column` on, with scales and bias; those from `left` on do not exist.
FOVEA_DEVICE void load_gated(const GatedArgs& w, int row, int column, int left, float (&gate)[8],
                             float (&up)[8]) {
  const float* const from = w.sums + (row - w.first_row) * w.stride + (w.interleaved ? 2 * column : column);
  const float* const above = from + (w.interleaved ? 8 : w.e.columns);
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    if (w.interleaved && left >= 8) {
      const float4 a = *reinterpret_cast<const float4*>(from + i),
                   b = *reinterpret_cast<const float4*>(above + i);
      gate[i] = a.x, gate[i + 1] = a.y, gate[i + 2] = a.z, gate[i + 3] = a.w;
      up[i] = b.x, up[i + 1] = b.y, up[i + 2] = b.z, up[i + 3] = b.w;
    } else {
#pragma unroll
      for (int j = i; j < i + 4; ++j)
        gate[j] = j < left ? from[j] : 0.0f, up[j] = j < left ? above[j] : 0.0f;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i >= left) continue;
    if (w.scales != nullptr) {
      gate[i] = __fmul_rn(gate[i], __ldg(w.scales + column + i));
      up[i] = __fmul_rn(up[i], __ldg(w.scales + w.e.columns + column + i));
    }
    if (w.bias != nullptr) {
      gate[i] = __fadd_rn(gate[i], __ldg(w.bias + column + i));
      up[i] = __fadd_rn(up[i], __ldg(w.bias + w.e.columns + column + i));
    }
  }
}

/// A CTA: a tile and 128 outputs, from as many gates and ups.
template <class T>
__global__ __launch_bounds__(kThreads) void lora_gated_kernel(LoraArgs p, GatedArgs w, int blocks) {
  __shared__ LoraShared shared;
  grid_launch_dependents();
  const LoraCta<T> cta(p, w.first_tile, p.shrinks + blocks);
  const LoraSlot<T>& slot = cta.slot;
  if (cta.index < p.shrinks) return cta.run_shrink(p, shared.sums);
  const int up_module = p.modules > 1 ? 1 : 0, columns = w.e.columns;
  const bool adapts = slot.adapts();
  const bool gates = adapts && slot.scale[0] != 0.0f;
  const bool ups = adapts && slot.scale_of(up_module) != 0.0f;
  const int first =
      (cta.index - p.shrinks) * kGatedColumns + static_cast<int>(threadIdx.x) / 32 * 8 * kGatedGroups;
  const int column = first + 2 * kGatedGroups * (lane_id() % 4), left = columns - column;
  const TileRows<T> rows(p, slot);
  LoraColumnWeights<T, kGatedGroups> gate_weights, up_weights;
  if (gates) gate_weights.load(slot, first, columns, 0);
  if (ups) up_weights.load(slot, columns + first, 2 * columns, 0);
  if (!p.early_input) grid_dependency_wait();
  if (adapts) cta.await_shrink(p, true, blocks);
  float gate[kGatedGroups][4] = {}, up[kGatedGroups][4] = {};
#pragma unroll 1
  for (int rank = 0; adapts && rank < slot.rank; rank += kStepRanks) {
    if (rank > 0) __syncthreads();  // the last step's have been read
    if (gates) gather_low(p, slot, 0, rank, shared.low[0]);
    if (ups) gather_low(p, slot, up_module, rank, shared.low[1]);
    __syncthreads();
    const int next = rank + kStepRanks;
    if (gates) {
      expand(shared.low[0], slot.rank - rank, gate_weights, gate);
      if (next < slot.rank) gate_weights.load(slot, first, columns, next);
    }
    if (ups) {
      expand(shared.low[1], slot.rank - rank, up_weights, up);
      if (next < slot.rank) up_weights.load(slot, columns + first, 2 * columns, next);
    }
  }
  if (slot.rows == 0 && cta.tile > w.first_tile) return;
  grid_dependency_wait();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (rows.row[h] < 0) continue;
    float a[8], b[8], v[8];
    load_gated(w, rows.row[h], column, left, a, b);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (gates) a[i] = __fadd_rn(a[i], gate[i / 2][2 * h + i % 2]);
      if (ups) b[i] = __fadd_rn(b[i], up[i / 2][2 * h + i % 2]);
      v[i] = gated_value<false>(w.e, a[i], b[i]);
    }
    store_outputs(static_cast<T*>(w.e.y) + rows.row[h] * w.e.y_stride + column, w.e.wide, left, v);
  }
}

// ---- fp32

/// A CTA: a tile; a warp takes a rank of a row at a time.
__global__ __launch_bounds__(kFloatThreads) void lora_float_shrink(LoraArgs p, int first_tile) {
  const LoraSlot<float> slot(p, first_tile + static_cast<int>(blockIdx.x));
  if (!slot.adapts()) return;
  const int ranks = p.modules * slot.rank;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < slot.rows * ranks; i += kFloatThreads / 32) {
    const float* x = static_cast<const float*>(p.x) + p.order[slot.first + i / ranks] * p.x_stride;
    const float* a = slot.a + static_cast<int64_t>(i % ranks) * p.a_stride;
    float sum = 0.0f;
    for (int k = lane_id(); k < p.k; k += 32)
      sum = __fmaf_rn(x[k], a[k], sum);
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
      sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, step));
    if (lane_id() == 0) *low_of(p, slot.first + i / ranks, 0, i % ranks) = sum;
  }
}

FOVEA_DEVICE float float_chain(const LoraArgs& p, const LoraSlot<float>& slot, int place, int module,
                               int output, float y) {
  const float* low = low_of(p, place, 0, module * slot.rank);
  const float* b = slot.b + static_cast<int64_t>(output) * slot.rank;
  for (int r = 0; r < slot.rank; ++r)
    y = __fmaf_rn(__fmul_rn(low[r], slot.scale_of(module)), b[r], y);
  return y;
}

__global__ __launch_bounds__(kFloatThreads) void lora_float_expand(LoraArgs p, float* y, int64_t y_stride) {
  const LoraSlot<float> slot(p, static_cast<int>(blockIdx.x));
  const int output = static_cast<int>(blockIdx.y) * kFloatThreads + static_cast<int>(threadIdx.x);
  if (slot.slot < 0 || output >= p.n) return;
  const int module = p.modules > 2 && output >= p.first_output[2]   ? 2
                     : p.modules > 1 && output >= p.first_output[1] ? 1
                                                                    : 0;
  if (slot.scale_of(module) == 0.0f) return;
  for (int i = 0; i < slot.rows; ++i) {
    float* at = y + p.order[slot.first + i] * y_stride + output;
    *at = float_chain(p, slot, slot.first + i, module, output, *at);
  }
}

__global__ __launch_bounds__(kFloatThreads) void lora_float_gated(LoraArgs p, GatedArgs w) {
  const LoraSlot<float> slot(p, w.first_tile + static_cast<int>(blockIdx.x));
  const int output = static_cast<int>(blockIdx.y) * kFloatThreads + static_cast<int>(threadIdx.x);
  const int columns = w.e.columns, up_module = p.modules > 1 ? 1 : 0;
  if (output >= columns) return;
  for (int i = 0; i < slot.rows; ++i) {
    const int row = p.order[slot.first + i];
    const float* from = w.sums + (row - w.first_row) * w.stride + output;
    float gate = from[0], up = from[columns];
    if (w.bias != nullptr) {
      gate = __fadd_rn(gate, w.bias[output]);
      up = __fadd_rn(up, w.bias[columns + output]);
    }
    if (slot.slot >= 0 && slot.scale[0] != 0.0f) gate = float_chain(p, slot, slot.first + i, 0, output, gate);
    if (slot.slot >= 0 && slot.scale_of(up_module) != 0.0f)
      up = float_chain(p, slot, slot.first + i, up_module, columns + output, up);
    static_cast<float*>(w.e.y)[row * w.e.y_stride + output] = gated_value<true>(w.e, gate, up);
  }
}

// ---- launches

Status check(const LoraParams& p) {
  const bool multiple = p.max_rank % 8 == 0 && p.a_stride % 8 == 0 && p.x_stride % 8 == 0;
  const bool in_range = p.num_tiles >= 0 && p.num_tiles < INT_MAX && p.k > 0 && p.k <= INT_MAX / 4 &&
                        p.n > 0 && p.n <= INT_MAX / 4 && p.modules >= 1 && p.modules <= 3 && p.max_rank > 0 &&
                        p.a_stride >= p.k;
  const bool counted = p.dtype == DType::f32 || p.counters != nullptr;
  const bool aligned = (reinterpret_cast<uintptr_t>(p.x) | reinterpret_cast<uintptr_t>(p.slots)) % 16 == 0 &&
                       p.slot_bytes % 16 == 0 && p.matrices % 16 == 0;
  if (in_range && counted && (p.dtype == DType::f32 || (multiple && aligned))) return {};
  return invalid("adapters of a layer of " + std::to_string(p.k) + " inputs, " + std::to_string(p.n) +
                 " outputs and " + std::to_string(p.modules) + " modules, ranks up to " +
                 std::to_string(p.max_rank) + ", " + std::to_string(p.num_tiles) +
                 " tiles: 1 to 3 modules, ranks and strides that are multiples of 8, and rows and slots that "
                 "are 16-byte aligned, and counters are allowed");
}

LoraArgs args_of(const LoraParams& p) {
  LoraArgs a{};
  a.slots = static_cast<const std::byte*>(p.slots);
  a.slot_bytes = p.slot_bytes;
  a.matrices = p.matrices;
  a.a = p.a;
  a.b = p.b;
  a.line = p.line;
  a.k = static_cast<int>(p.k);
  a.a_stride = static_cast<int>(p.a_stride);
  a.n = static_cast<int>(p.n);
  a.modules = p.modules;
  for (int m = 0; m <= p.modules; ++m)
    a.first_output[m] = static_cast<int>(p.first_output[m]);
  a.order = p.order;
  a.tiles = reinterpret_cast<const int4*>(p.tiles);
  a.num_tiles = static_cast<int>(p.num_tiles);
  a.parts = static_cast<int>(lora_parts(p.dtype, p.k));
  a.low_stride = p.modules * p.max_rank;
  a.x = p.x;
  a.x_stride = p.x_stride;
  a.low = p.low;
  const int groups = (a.low_stride + kShrinkRanks - 1) / kShrinkRanks;
  a.shrinks = a.parts * (groups < kMostGroups ? groups : kMostGroups);
  a.counters = p.counters;
  a.early_input = p.early_input;
  return a;
}

/// x A^T of the tiles.
Status float_shrink(const LoraArgs& a, int64_t first_tile, int64_t tiles, CudaStream& stream) {
  lora_float_shrink<<<static_cast<unsigned>(tiles), kFloatThreads, 0, stream.handle()>>>(
      a, static_cast<int>(first_tile));
  FOVEA_CUDA_TRY(cudaGetLastError());
  return {};
}

Status check_grid(int64_t ctas) {
  if (ctas < INT_MAX) return {};
  return invalid("adapters: a launch of " + std::to_string(ctas) + " blocks; fewer than 2^31 are allowed");
}

template <class... Parameters, class... Arguments>
Status launch(void (*kernel)(Parameters...), int64_t ctas, int threads, CudaStream& stream,
              const Arguments&... arguments) {
  FOVEA_RETURN_IF_ERROR(check_grid(ctas));
  FOVEA_CUDA_TRY(launch_dependent(kernel, {static_cast<unsigned>(ctas), static_cast<unsigned>(threads)},
                                  stream.handle(), arguments...));
  return {};
}

}  // namespace

int64_t lora_parts(DType dtype, int64_t k) {
  return dtype == DType::f32 ? 1 : std::min<int64_t>((k + kLoraInputs - 1) / kLoraInputs, kLoraParts);
}

Status launch_lora(const LoraParams& p, void* y, int64_t y_stride, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check(p));
  if (p.num_tiles == 0) return {};
  const LoraArgs a = args_of(p);
  if (p.dtype == DType::f32) {
    FOVEA_RETURN_IF_ERROR(float_shrink(a, 0, p.num_tiles, stream));
    const dim3 grid(static_cast<unsigned>(p.num_tiles),
                    static_cast<unsigned>((p.n + kFloatThreads - 1) / kFloatThreads));
    lora_float_expand<<<grid, kFloatThreads, 0, stream.handle()>>>(a, static_cast<float*>(y), y_stride);
    FOVEA_CUDA_TRY(cudaGetLastError());
    return {};
  }
  int64_t blocks = 0;
  bool wide = reinterpret_cast<uintptr_t>(y) % 16 == 0 && y_stride % 8 == 0;
  for (int m = 0; m < p.modules; ++m) {
    blocks += lora_blocks(a.first_output[m + 1] - a.first_output[m]);
    wide = wide && p.first_output[m] % 8 == 0;
  }
  const int64_t ctas = p.num_tiles * (a.shrinks + blocks);
  if (p.dtype == DType::f16)
    return launch(lora_expand_kernel<__half>, ctas, kThreads, stream, a, static_cast<__half*>(y), y_stride,
                  static_cast<int>(blocks), wide);
  return launch(lora_expand_kernel<__nv_bfloat16>, ctas, kThreads, stream, a, static_cast<__nv_bfloat16*>(y),
                y_stride, static_cast<int>(blocks), wide);
}

Status launch_lora_gated(const LoraParams& p, const LoraGatedParams& gated, CudaStream& stream) {
  FOVEA_RETURN_IF_ERROR(check(p));
  if (p.n % 2 != 0 || p.modules > 2 || gated.layer.epilogue != LinearEpilogue::gated ||
      gated.layer.n != p.n || gated.first_tile + gated.num_tiles > p.num_tiles)
    return invalid("adapters of a gated layer of " + std::to_string(p.n) +
                   " outputs: gates and as many ups, in 1 or 2 modules, are allowed");
  if (gated.num_tiles == 0) return {};
  const LoraArgs a = args_of(p);
  GatedArgs w{};
  w.sums = gated.wide;
  w.stride = gated.wide_stride;
  w.scales = gated.layer.scales;
  w.bias = gated.layer.bias;
  w.first_row = static_cast<int>(gated.first_row);
  w.first_tile = static_cast<int>(gated.first_tile);
  w.num_tiles = static_cast<int>(gated.num_tiles);
  w.interleaved = gated.interleaved;
  w.e = make_epilogue(gated.layer);
  if (p.dtype == DType::f32) {
    FOVEA_RETURN_IF_ERROR(float_shrink(a, gated.first_tile, gated.num_tiles, stream));
    const dim3 grid(static_cast<unsigned>(gated.num_tiles),
                    static_cast<unsigned>((w.e.columns + kFloatThreads - 1) / kFloatThreads));
    lora_float_gated<<<grid, kFloatThreads, 0, stream.handle()>>>(a, w);
    FOVEA_CUDA_TRY(cudaGetLastError());
    return {};
  }
  const int blocks = (w.e.columns + kGatedColumns - 1) / kGatedColumns;
  const int64_t ctas = gated.num_tiles * (a.shrinks + blocks);
  return p.dtype == DType::f16
             ? launch(lora_gated_kernel<__half>, ctas, kThreads, stream, a, w, blocks)
             : launch(lora_gated_kernel<__nv_bfloat16>, ctas, kThreads, stream, a, w, blocks);
}

}  // namespace fovea::cuda
