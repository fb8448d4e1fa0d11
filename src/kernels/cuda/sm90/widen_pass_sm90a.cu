#include "kernels/cuda/sm90/widen_pass.h"

#include <algorithm>
#include <climits>
#include <type_traits>

#include "kernels/cuda/common/widen.cuh"
#include "kernels/cuda/sm90/x_packed.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm90 {
namespace {

constexpr int kPlanThreads = 1024, kWidenThreads = 256, kMostTileKeys = 128;
constexpr int kElements = 8;  ///< that a thread widens at once

struct WidenParams {
  KvParams kv;
  const WorkItem* items;
  const int32_t* num_items;
  int max_seqs, tile_keys, windows, window_blocks;
  int64_t max_items, rows;
  FastDivisor heads, chunks[2];  ///< of K and V: groups of kElements
  WidenSequence* sequences;
  int32_t *blocks, *window_ends, *window_items;
  WorkItem* window_of;  ///< [windows, max_items]
  char* out[2];         ///< [heads, rows, dims]
  float* scales[2];     ///< [heads, rows]; null: not of each token
};

WidenParams params_of(const AttentionParams& p, const KernelInfo& kernel, const WidenSpace& space) {
  const WidenLayout& l = space.layout;
  WidenParams a{};
  a.kv = p.kv;
  a.items = p.items, a.num_items = p.num_items;
  a.max_seqs = l.max_seqs, a.tile_keys = kernel.tile_keys;
  a.windows = l.windows, a.window_blocks = static_cast<int>(l.window_blocks);
  a.max_items = l.max_items, a.rows = l.rows;
  a.heads = p.kv_heads;
  a.chunks[0] = FastDivisor(static_cast<uint32_t>(kernel.head_dim / kElements));
  a.chunks[1] = FastDivisor(static_cast<uint32_t>(kernel.v_head_dim / kElements));
  const auto at = [&]<class T>(T*& pointer, size_t offset) {
    pointer = reinterpret_cast<T*>(space.memory + offset);
  };
  at(a.sequences, l.sequences), at(a.blocks, l.blocks), at(a.window_ends, l.window_ends);
  at(a.window_items, l.window_items), at(a.window_of, l.items), at(a.out[0], l.k), at(a.out[1], l.v);
  if (kernel.kv == KvType::int8) at(a.scales[0], l.k_scales), at(a.scales[1], l.v_scales);
  return a;
}

/// The inclusive sum over the CTA's threads; `sums`: one int for each warp. `all`: the sum of all.
__device__ int sum_of_threads(int x, int* sums, int& all) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int i = 1; i < 32; i *= 2) {
    const int other = __shfl_up_sync(~0u, x, static_cast<unsigned>(i));
    if (lane >= i) x += other;
  }
  __syncthreads();
  if (lane == 31) sums[warp] = x;
  __syncthreads();
  int before = sums[lane];
  for (int i = 1; i < 32; i *= 2) {
    const int other = __shfl_up_sync(~0u, before, static_cast<unsigned>(i));
    if (lane >= i) before += other;
  }
  all = __shfl_sync(~0u, before, 31);
  const int in_front = __shfl_sync(~0u, before, max(warp - 1, 0));
  return x + (warp > 0 ? in_front : 0);
}

/// What each sequence's items see.
__device__ void find_rows(const WidenParams& a, int num_items) {
  for (int s = static_cast<int>(threadIdx.x); s < a.max_seqs; s += kPlanThreads)
    a.sequences[s] = {0, INT_MAX, 0, INT_MAX, 0, 0};
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < num_items; i += kPlanThreads) {
    const WorkItem item = a.items[i];
    WidenSequence& s = a.sequences[item.seq];
    // An item without keys has one tile all the same.
    const int tiles = (max(item.key_last, item.key_first + 1) + a.tile_keys - 1) / a.tile_keys;
    s.pages = item.pages;
    s.n_k = item.n_k;
    atomicMin(&s.low, item.key_first);
    atomicMin(&s.key_low, item.key_low);
    atomicMax(&s.past, tiles * a.tile_keys);
  }
  __syncthreads();
}

/// The sequences' blocks, one after the other, and the windows that they lie in.
__device__ void place_blocks(const WidenParams& a, int* sums) {
  for (int w = static_cast<int>(threadIdx.x); w <= a.windows; w += kPlanThreads)
    a.window_ends[w] = w == 0 ? 0 : -1;
  __syncthreads();
  int carry = 0;
  for (int base = 0; base < a.max_seqs; base += kPlanThreads) {
    const int s = base + static_cast<int>(threadIdx.x);
    int count = 0, all = 0;
    if (s < a.max_seqs && a.sequences[s].low < INT_MAX)
      count = (a.sequences[s].past - a.sequences[s].low) / a.tile_keys;
    const int past = carry + sum_of_threads(count, sums, all);
    if (count > 0) {
      a.sequences[s].first_block = past - count;
      atomicMax(&a.window_ends[(past - count) / a.window_blocks + 1], past);
    }
    carry += all;
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w <= a.windows; ++w)
      a.window_ends[w] = max(a.window_ends[w], a.window_ends[w - 1]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int s = static_cast<int>(threadIdx.x) / 32; s < a.max_seqs; s += kPlanThreads / 32) {
    const WidenSequence q = a.sequences[s];
    if (q.low == INT_MAX) continue;
    const int count = (q.past - q.low) / a.tile_keys;
    for (int b = lane; b < count; b += 32)
      a.blocks[q.first_block + b] = s;
  }
  __syncthreads();
}

/// The items of each window in their order, with their rows in the space.
__device__ void place_items(const WidenParams& a, int num_items, int* sums) {
  for (int w = 0; w < a.windows; ++w) {
    int carry = 0;
    for (int base = 0; base < num_items; base += kPlanThreads) {
      const int i = base + static_cast<int>(threadIdx.x);
      int mine = 0, all = 0;
      if (i < num_items) mine = a.sequences[a.items[i].seq].first_block / a.window_blocks == w ? 1 : 0;
      const int past = carry + sum_of_threads(mine, sums, all);
      if (mine != 0) {
        WorkItem item = a.items[i];
        const WidenSequence& s = a.sequences[item.seq];
        item.pages = int64_t{s.first_block - a.window_ends[w]} * a.tile_keys - s.low;
        a.window_of[w * a.max_items + past - 1] = item;
      }
      carry += all;
    }
    if (threadIdx.x == 0) a.window_items[w] = carry;
  }
}

__global__ __launch_bounds__(kPlanThreads) void widen_plan_kernel(const WidenParams a) {
  __shared__ int sums[32];
  grid_launch_dependents();
  grid_dependency_wait();
  const int num_items = *a.num_items;
  find_rows(a, num_items);
  place_blocks(a, sums);
  place_items(a, num_items, sums);
}

/// Four words of four bytes, transposed.
__device__ __forceinline__ void transpose_bytes(uint32_t (&x)[4]) {
  const uint32_t a = __byte_perm(x[0], x[1], 0x5140), b = __byte_perm(x[0], x[1], 0x7362);
  const uint32_t c = __byte_perm(x[2], x[3], 0x5140), d = __byte_perm(x[2], x[3], 0x7362);
  x[0] = __byte_perm(a, c, 0x5410), x[1] = __byte_perm(a, c, 0x7632);
  x[2] = __byte_perm(b, d, 0x5410), x[3] = __byte_perm(b, d, 0x7632);
}

/// Rows of kElements columns of x-packed values: `from` is their first chunk, 16 bytes of the keys of a run.
/// `store(key, row)` takes each of the run's rows.
template <KvType Type, class T, class Store>
__device__ __forceinline__ void transpose_run(const char* from, int64_t dim_stride, Store&& store) {
  uint32_t x[kElements][4];
#pragma unroll
  for (int d = 0; d < kElements; ++d) {
    const uint4 chunk = __ldg(reinterpret_cast<const uint4*>(from + d * dim_stride));
    x[d][0] = chunk.x, x[d][1] = chunk.y, x[d][2] = chunk.z, x[d][3] = chunk.w;
  }
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    if constexpr (Type == KvType::same) {
      constexpr uint32_t kHalves[] = {0x5410, 0x7632};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto pair = [&](int d) { return __byte_perm(x[d][word], x[d + 1][word], kHalves[half]); };
        store(2 * word + half, make_uint4(pair(0), pair(2), pair(4), pair(6)));
      }
    } else {
      uint32_t low[4], high[4];
#pragma unroll
      for (int d = 0; d < 4; ++d)
        low[d] = x[d][word], high[d] = x[4 + d][word];
      transpose_bytes(low);
      transpose_bytes(high);
#pragma unroll
      for (int key = 0; key < 4; ++key) {
        uint32_t a[2], b[2];
        widen<Type, T>(a, low[key]);
        widen<Type, T>(b, high[key]);
        store(4 * word + key, make_uint4(a[0], a[1], b[0], b[1]));
      }
    }
  }
}

/// `Packed`: the pages are x-packed.
template <KvType Type, class T, bool Packed>
__global__ __launch_bounds__(kWidenThreads) void widen_kernel(const WidenParams a, int window) {
  __shared__ int64_t offsets[kMostTileKeys];
  grid_launch_dependents();
  grid_dependency_wait();
  const int values = static_cast<int>(blockIdx.y), tile = a.tile_keys, thread = static_cast<int>(threadIdx.x);
  const int heads = static_cast<int>(a.heads.divisor), chunks = static_cast<int>(a.chunks[values].divisor);
  const int first = a.window_ends[window], past = a.window_ends[window + 1];
  const int64_t page_stride = values != 0 ? a.kv.v_page_stride : a.kv.k_page_stride;
  const int64_t slot_stride = values != 0 ? a.kv.v_slot_stride : a.kv.k_slot_stride;
  const int64_t head_stride = values != 0 ? a.kv.v_head_stride : a.kv.k_head_stride;
  const char* const from = values != 0 ? a.kv.v : a.kv.k;
  constexpr int kX = 16 / kv_bytes(Type);  // keys of a run of x-packed values
  const int64_t run_stride = a.kv.v_chunk_stride != 0 ? a.kv.v_chunk_stride : 16;
  for (int b = first + static_cast<int>(blockIdx.x); b < past; b += static_cast<int>(gridDim.x)) {
    const WidenSequence& s = a.sequences[a.blocks[b]];
    const int64_t row0 = int64_t{b - first} * tile;
    __syncthreads();
    for (int r = thread; r < tile; r += kWidenThreads) {
      const int key = s.low + (b - s.first_block) * tile + r;
      int64_t page = s.pages + key, slot = 0;
      const bool read = key >= s.key_low && key < s.n_k;
      if (read && a.kv.pages != nullptr) {
        const int index = a.kv.page_size.quotient(key);
        page = a.kv.pages[s.pages + index];
        slot = key - index * static_cast<int>(a.kv.page_size.divisor);
      }
      offsets[r] = read ? page * page_stride + slot * slot_stride : -1;
      if (Packed && values != 0) {
        // Where the run lies, if any of its keys is read: they are in one page.
        const int run = key / kX * kX;
        int64_t offset = -1;
        if (run < s.n_k && run + kX > s.key_low) {
          const int index = a.kv.page_size.quotient(run);
          const int first_slot = run - index * static_cast<int>(a.kv.page_size.divisor);
          offset = a.kv.pages[s.pages + index] * page_stride + first_slot / kX * run_stride;
        }
        offsets[r] = offset;
      }
      if constexpr (Type == KvType::int8) {
        const float* const scales = values != 0 ? a.kv.v_scales : a.kv.k_scales;
        for (int h = 0; h < heads; ++h)
          a.scales[values][h * a.rows + row0 + r] =
              read ? scales[page * a.kv.scale_page_stride + slot * a.kv.scale_slot_stride +
                            h * a.kv.scale_head_stride]
                   : 0.0f;
      }
    }
    __syncthreads();
    if constexpr (Packed) {
      if (values != 0) {
        const int key0 = s.low + (b - s.first_block) * tile;
        for (int i = thread; i < tile / kX * heads * chunks; i += kWidenThreads) {
          // Two adjacent runs of 16-bit values may share a sector.
          constexpr int kPair = Type == KvType::same ? 2 : 1;
          const int run_head = a.chunks[1].quotient(i / kPair), chunk = i / kPair - run_head * chunks;
          const int pair = a.heads.quotient(run_head), head = run_head - pair * heads;
          const int run = pair * kPair + i % kPair;
          const int64_t offset = offsets[run * kX];
          uint4* const to =
              reinterpret_cast<uint4*>(a.out[1]) + (head * a.rows + row0 + run * kX) * chunks + chunk;
          const auto store = [&](int k, uint4 row) {
            const int key = key0 + run * kX + k;
            to[int64_t{k} * chunks] = key >= s.key_low && key < s.n_k ? row : make_uint4(0, 0, 0, 0);
          };
          if (offset >= 0)
            transpose_run<Type, T>(
                from + offset + head * head_stride + int64_t{chunk} * kElements * a.kv.v_dim_stride,
                a.kv.v_dim_stride, store);
          else
            for (int k = 0; k < kX; ++k)
              store(k, make_uint4(0, 0, 0, 0));
        }
        continue;
      }
    }
    constexpr int kBatch = 8;
    const int count = tile * heads * chunks;
    for (int base = thread; base < count; base += kBatch * kWidenThreads) {
      constexpr bool kSixteen = Type == KvType::same;
      using Loaded = std::conditional_t<kSixteen, uint4, uint2>;
      Loaded bytes[kBatch];
      int64_t to[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int i = base + k * kWidenThreads;
        bytes[k] = Loaded{};
        to[k] = -1;
        if (i < count) {
          constexpr int kPair = Packed ? 2 : 1;  // adjacent keys, whose x-packed chunks share a sector
          const int row_head = a.chunks[values].quotient(i / kPair), chunk = i / kPair - row_head * chunks;
          const int pair = a.heads.quotient(row_head), head = row_head - pair * heads;
          const int row = pair * kPair + i % kPair;
          const int64_t offset = offsets[row];
          int64_t at = int64_t{chunk} * static_cast<int64_t>(sizeof(Loaded));
          if (Packed) at = at / 16 * a.kv.k_chunk_stride + at % 16;
          if (offset >= 0)
            bytes[k] = __ldg(reinterpret_cast<const Loaded*>(from + offset + head * head_stride + at));
          to[k] = (head * a.rows + row0 + row) * chunks + chunk;
        }
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        uint4 row;
        if constexpr (kSixteen) {
          row = bytes[k];
        } else {
          uint32_t low[2], high[2];
          widen<Type, T>(low, bytes[k].x);
          widen<Type, T>(high, bytes[k].y);
          row = make_uint4(low[0], low[1], high[0], high[1]);
        }
        if (to[k] >= 0) reinterpret_cast<uint4*>(a.out[values])[to[k]] = row;
      }
    }
  }
}

template <class T, bool Packed>
auto kernel_of(KvType type) {
  return type == KvType::e4m3   ? widen_kernel<KvType::e4m3, T, Packed>
         : type == KvType::e5m2 ? widen_kernel<KvType::e5m2, T, Packed>
                                : widen_kernel<KvType::int8, T, Packed>;
}

auto kernel_of(const KernelInfo& kernel, const KvParams& kv) {
  const KvType type = kv.type;
  const bool half = kernel.q == QueryType::f16;
  if (!is_x_packed(kv)) return half ? kernel_of<__half, false>(type) : kernel_of<__nv_bfloat16, false>(type);
  if (type == KvType::same) return widen_kernel<KvType::same, __half, true>;  // whichever type has 16 bits
  return half ? kernel_of<__half, true>(type) : kernel_of<__nv_bfloat16, true>(type);
}

}  // namespace

cudaError_t queue_widen_plan(const AttentionParams& p, const KernelInfo& kernel, const WidenSpace& space,
                             cudaStream_t stream) {
  return launch_dependent(widen_plan_kernel, {1, kPlanThreads}, stream, params_of(p, kernel, space));
}

cudaError_t queue_widen(AttentionParams& p, const KernelInfo& kernel, const WidenSpace& space, int window,
                        int multiprocessors, cudaStream_t stream) {
  const WidenLayout& l = space.layout;
  const WidenParams a = params_of(p, kernel, space);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(
      static_cast<unsigned>(std::min<int64_t>(l.rows / kernel.tile_keys, int64_t{4} * multiprocessors)), 2);
  config.blockDim = dim3(kWidenThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t code = cudaLaunchKernelEx(&config, kernel_of(kernel, p.kv), a, window);
  KvParams& kv = p.kv;
  kv.type = KvType::same;
  kv.k = a.out[0], kv.v = a.out[1];
  kv.k_page_stride = int64_t{2} * kernel.head_dim, kv.v_page_stride = int64_t{2} * kernel.v_head_dim;
  kv.k_slot_stride = kv.v_slot_stride = 0;
  kv.k_chunk_stride = kv.v_dim_stride = kv.v_chunk_stride = 0;
  kv.k_head_stride = l.rows * kv.k_page_stride, kv.v_head_stride = l.rows * kv.v_page_stride;
  kv.page_size = FastDivisor(1);
  kv.pages = nullptr;
  kv.rows = l.rows;
  if (a.scales[0] != nullptr) {
    kv.k_scales = a.scales[0], kv.v_scales = a.scales[1];
    kv.scale_page_stride = 1, kv.scale_slot_stride = 0, kv.scale_head_stride = l.rows;
  }
  p.items = a.window_of + window * l.max_items;
  p.num_items = a.window_items + window;
  return code;
}

}  // namespace fovea::cuda::sm90
