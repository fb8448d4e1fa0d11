// Scores of index keys by wgmma in e4m3, for compute capability 9.0: a CTA has up to 8 rows of a step. A
// warpgroup loads tiles of 128 keys by cp.async, two multiply 64 keys each with the heads of all rows.
#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/index/scores.h"
#include "kernels/cuda/tiles/cp_async.cuh"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"
#include "kernels/cuda/tiles/mbarrier.cuh"
#include "kernels/cuda/tiles/tma.cuh"
#include "kernels/cuda/tiles/wgmma.cuh"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 384, kLoaders = 128, kTile = 128, kStages = 4;
constexpr int kRowBytes = kIndexDim;
constexpr int kTileBytes = kTile * kRowBytes;
constexpr int kLoaderRegisters = 72, kMathRegisters = 216;

/// Shared memory. kHeads: 32 or 64; where there are fewer, zeros have their place. kColumns: of a product, 64
/// or 128.
template <int kHeads, int kColumns>
struct Layout {
  static constexpr int kQueryBytes = kColumns * kRowBytes;
  static constexpr int kQueries = kColumns / kHeads;  ///< of a product
  static constexpr int kProducts = kMostRowBlock / kQueries;
  static constexpr int kKeys = kProducts * kQueryBytes, kScales = kKeys + kStages * kTileBytes;
  static constexpr int kWeights = kScales + kStages * kTile * 4;
  static constexpr int kBarriers = kWeights + kProducts * kColumns * 4;
  static constexpr int kBytes = kBarriers + kStages * 16 + 1024;
};

/// d = A B^T (+ d) of 64 keys and 128 columns, 32 elements of each.
FOVEA_DEVICE void multiply(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
      "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
      "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "
      "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]),
        "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
        "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]),
        "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// The same with 64 columns.
FOVEA_DEVICE void multiply(float (&d)[32], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
      "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
      "%31}, %32, %33, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// The rows of a block that belong to one sequence.
struct Segment {
  int seq, first, last;
  int64_t seen = 0;  ///< keys of the last row; a row before sees one fewer
  int keys, tiles;

  __device__ Segment(const ScoreParams& p, int row, int end) : first(row) {
    seq = p.seqs.of(p.in.first + row);
    last = seq < 0 ? end : min(end, p.seqs.q_offsets[seq + 1] - p.in.first);
    if (seq >= 0) seen = p.seqs.kv_lens[seq] - (p.seqs.q_offsets[seq + 1] - p.in.first - last);
    keys = static_cast<int>(max(int64_t{0}, min(seen, p.in.max_keys)));
    tiles = keys > p.in.topk ? (keys + kTile - 1) / kTile : 0;
  }
  __device__ int64_t row_keys(int row) const { return min(seen - (last - 1 - row), int64_t{keys}); }
};

template <int kHeads, int kColumns>
struct Block {
  using L = Layout<kHeads, kColumns>;
  using Sums = float[kColumns / 2];
  const ScoreParams& p;
  const uint32_t base;  ///< a multiple of 1024
  const int share, begin, end;
  const int thread = static_cast<int>(threadIdx.x) % 128;

  __device__ Block(const ScoreParams& params, uint32_t address)
      : p(params),
        base(address),
        share(static_cast<int>(blockIdx.x) / params.blocks),
        begin(static_cast<int>(blockIdx.x) % params.blocks * params.row_block),
        end(min(params.in.rows, begin + params.row_block)) {}

  FOVEA_DEVICE uint32_t keys(uint32_t slot) const { return base + L::kKeys + slot * kTileBytes; }
  FOVEA_DEVICE uint32_t scales(uint32_t slot) const { return base + L::kScales + slot * kTile * 4; }
  FOVEA_DEVICE uint32_t weights() const { return base + L::kWeights; }
  FOVEA_DEVICE uint32_t full(uint32_t slot) const { return base + L::kBarriers + slot * 16; }
  FOVEA_DEVICE uint32_t empty(uint32_t slot) const { return full(slot) + 8; }

  /// By one thread.
  __device__ void init() const {
    for (uint32_t slot = 0; slot < kStages; ++slot) {
      mbarrier_init(full(slot), kLoaders);
      mbarrier_init(empty(slot), 2);
    }
    mbarrier_init_fence();
  }

  /// By all threads; a barrier must follow. Columns of rows that do not exist are zeros.
  __device__ void load_queries() const {
    const int rows = end - begin, columns = (rows + L::kQueries - 1) / L::kQueries * kColumns;
    for (int i = static_cast<int>(threadIdx.x); i < columns * 8; i += kThreads) {
      const int column = i / 8, chunk = i % 8, row = column / kHeads, head = column % kHeads;
      const bool exists = row < rows && head < p.in.heads;
      const auto* const from = static_cast<const char*>(p.in.q) +
                               (exists ? (begin + row) * p.in.q_row_stride + head * kIndexDim : 0) +
                               chunk * 16;
      cp_async_16(base + static_cast<uint32_t>(column * kRowBytes + (chunk ^ column % 8) * 16), from, exists);
    }
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += kThreads) {
      const int row = i / kHeads, head = i % kHeads;
      const bool exists = row < rows && head < p.in.heads;
      const float w = exists ? p.in.weights[static_cast<int64_t>(begin + row) * p.in.heads + head] : 0.0f;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(weights() + static_cast<uint32_t>(i) * 4), "f"(w)
                   : "memory");
    }
    cp_async_wait_all();
    fence_proxy_async();
  }

  // ---- Loaders: eight threads copy a key, a thread every 16th of a tile.

  static constexpr int kEach = kTile / 16;
  /// Where a key's codes, or its scale, are; -1: no such key.
  __device__ int64_t place(const int32_t* pages, int key, int count, int64_t page_stride,
                           int64_t slot_stride) const {
    if (key >= count) return -1;
    const int index = p.page_size.quotient(key);
    return __ldg(pages + index) * page_stride +
           (key - index * static_cast<int>(p.page_size.divisor)) * slot_stride;
  }
  struct Places {
    int64_t codes[kEach], scale;
  };
  __device__ void find(const int32_t* pages, int key0, int count, Places& to) const {
    const KvView& kv = p.in.keys;
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      to.codes[i] = place(pages, key0 + thread / 8 + 16 * i, count, kv.k_page_stride, kv.k_slot_stride);
    to.scale = place(pages, key0 + thread, count, kv.scale_page_stride, kv.scale_slot_stride);
  }
  __device__ void load() const {
    RingPosition<kStages> ring;
    const char* const codes = static_cast<const char*>(p.in.keys.k);
    const int chunk = thread % 8, key = thread / 8;
    for (int row = begin; row < end;) {
      const Segment s(p, row, end);
      row = s.last;
      if (share >= s.tiles) continue;
      const int32_t* const pages = p.seqs.pages_of(s.seq);
      Places next;
      find(pages, share * kTile, s.keys, next);
      for (int tile = share; tile < s.tiles; tile += p.shares, ring.next()) {
        const Places here = next;
        find(pages, (tile + p.shares) * kTile, s.keys, next);
        mbarrier_wait(empty(ring.slot), ring.phase ^ 1);
        const uint32_t to = keys(ring.slot) + static_cast<uint32_t>(key * kRowBytes + (chunk ^ key % 8) * 16);
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          cp_async_16(to + static_cast<uint32_t>(i * 16 * kRowBytes),
                      codes + (here.codes[i] < 0 ? 0 : here.codes[i]) + chunk * 16, here.codes[i] >= 0);
        cp_async_4(scales(ring.slot) + static_cast<uint32_t>(thread) * 4,
                   p.in.keys.k_scales + (here.scale < 0 ? 0 : here.scale), here.scale >= 0);
        cp_async_mbarrier_arrive(full(ring.slot));  // the others issue the proxy fence
      }
    }
    cp_async_wait_all();
  }

  // ---- Products: a warpgroup has 64 keys of each tile.

  FOVEA_DEVICE int group() const { return static_cast<int>(threadIdx.x) / 128 - 1; }

  /// Issues a product; wgmma_wait() and wgmma_pin() must follow.
  FOVEA_DEVICE void issue(Sums& d, uint32_t slot, int product) const {
    const uint64_t a = wgmma_descriptor(keys(slot) + static_cast<uint32_t>(group() * 64 * kRowBytes), 16,
                                        1024, TileSwizzle::span_128);
    const uint64_t b = wgmma_descriptor(base + static_cast<uint32_t>(product * L::kQueryBytes), 16, 1024,
                                        TileSwizzle::span_128);
    wgmma_fence();
#pragma unroll
    for (uint32_t k = 0; k < kIndexDim / 32; ++k)
      multiply(d, wgmma_advance(a, k * 32), wgmma_advance(b, k * 32), k > 0);
    wgmma_commit();
  }

  /// Sums over the heads of each query in one order, and stores. `row` is the first query's.
  FOVEA_DEVICE void store_sums(const Sums& d, uint32_t slot, int product, int key0, const Segment& s) const {
    constexpr int kGroups = kHeads / 8, kQ = L::kQueries;
    const int q = lane_id() % 4;
    const uint32_t from = weights() + static_cast<uint32_t>(product * kColumns + 2 * q) * 4;
    // Lanes with q >= 2 end with the key 8 further on, odd ones with the odd queries.
    const bool upper = (q & 2) != 0, odd = (q & 1) != 0;
    const int in_tile = group() * 64 + thread / 32 * 16 + lane_id() / 4 + (upper ? 8 : 0);
    const int key = key0 + in_tile;
    float scale;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(scale)
                 : "r"(scales(slot) + static_cast<uint32_t>(in_tile) * 4)
                 : "memory");
#pragma unroll
    for (int query = 0; query < kQ; query += 2) {
      constexpr int kPair = kQ < 2 ? 1 : 2;
      float two[2] = {0, 0};
#pragma unroll
      for (int e = 0; e < kPair; ++e) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = (query + e) * kGroups; j < (query + e + 1) * kGroups; ++j) {
          float2 w;
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                       : "=f"(w.x), "=f"(w.y)
                       : "r"(from + static_cast<uint32_t>(j * 32))
                       : "memory");
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            sum[h] = fmaf(fmaxf(d[4 * j + 2 * h], 0.0f), w.x, sum[h]);
            sum[h] = fmaf(fmaxf(d[4 * j + 2 * h + 1], 0.0f), w.y, sum[h]);
          }
        }
        two[e] = (upper ? sum[1] : sum[0]) + __shfl_xor_sync(~0u, upper ? sum[0] : sum[1], 2);
      }
      if (kPair == 1) two[1] = two[0];  // odd lanes have the same sum, which the even ones store
      const float total = (odd ? two[1] : two[0]) + __shfl_xor_sync(~0u, odd ? two[0] : two[1], 1);
      const int row = begin + product * kQ + query + (odd ? 1 : 0);
      const int64_t row_keys = s.row_keys(row);
      if (row >= s.first && row < s.last && key < row_keys && row_keys > p.in.topk && (kPair == 2 || !odd))
        p.scores[row * p.stride + key] = total * scale + 0.0f;  // -0 becomes 0, which it equals
    }
  }

  /// A product of a tile.
  struct Place {
    RingPosition<kStages> ring;
    int tile, product;
  };
  /// Stores the sums of `at`, and after the last product of a tile gives it back.
  FOVEA_DEVICE void finish(const Sums& d, const Place& at, int last, const Segment& s) const {
    store_sums(d, at.ring.slot, at.product, at.tile * kTile, s);
    if (at.product < last) return;
    __syncwarp();
    named_barrier_sync(static_cast<uint32_t>(1 + group()), 128);
    if (thread == 0) mbarrier_arrive(empty(at.ring.slot));
  }
  /// Products in pairs: while the first is summed and stored, the second is in flight. Without a second one
  /// the first is made again and nobody looks at it, as the compiler needs the same products on all ways.
  __device__ void multiply_all() const {
    Sums d, e;
    Place next{};
    for (int row = begin; row < end;) {
      const Segment s(p, row, end);
      row = s.last;
      if (share >= s.tiles) continue;
      const int first = (s.first - begin) / L::kQueries, last = (s.last - 1 - begin) / L::kQueries;
      next.tile = share, next.product = first;
      // Moves `at` to the next product and waits for its tile; false at the end of the segment.
      const auto take = [&](Place& at) {
        if (next.tile >= s.tiles) return false;
        at = next;
        if (at.product == first) {
          mbarrier_wait(full(at.ring.slot), at.ring.phase);
          fence_proxy_async();
        }
        if (++next.product > last) next.product = first, next.tile += p.shares, next.ring.next();
        return true;
      };
      Place at, after;
      while (take(at)) {
        issue(d, at.ring.slot, at.product);
        after = at;
        const bool second = take(after);
        issue(e, after.ring.slot, after.product);
        wgmma_wait<1>();
        wgmma_pin(d);
        finish(d, at, last, s);
        wgmma_wait<0>();
        wgmma_pin(e);
        if (second) finish(e, after, last, s);
      }
    }
  }
};

template <int kHeads, int kColumns>
__global__ void __launch_bounds__(kThreads, 1) index_scores_kernel(const __grid_constant__ ScoreParams p) {
  extern __shared__ __align__(128) char shared[];
  const Block<kHeads, kColumns> block(p, (shared_address(shared) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) block.init();
  grid_launch_dependents();
  grid_dependency_wait();
  block.load_queries();
  __syncthreads();
  if (threadIdx.x < kLoaders) {
    registers_decrease<kLoaderRegisters>();
    block.load();
  } else {
    registers_increase<kMathRegisters>();
    block.multiply_all();
  }
}

template <int kHeads, int kColumns>
Status launch(const ScoreParams& p, CudaStream& stream) {
  const auto kernel = index_scores_kernel<kHeads, kColumns>;
  constexpr int kShared = Layout<kHeads, kColumns>::kBytes;
  FOVEA_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  FOVEA_CUDA_TRY(launch_dependent(kernel, {static_cast<unsigned>(p.blocks * p.shares), kThreads, kShared},
                                  stream.handle(), p));
  return {};
}

}  // namespace

Status launch_scores_sm90(const ScoreParams& p, CudaStream& stream) {
  if (p.in.heads <= 32) return launch<32, 128>(p, stream);
  return p.row_block == 1 ? launch<64, 64>(p, stream) : launch<64, 128>(p, stream);
}

}  // namespace fovea::cuda
