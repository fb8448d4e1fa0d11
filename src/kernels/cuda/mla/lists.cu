#include "kernels/cuda/mla/lists.h"

#include <algorithm>

#include "device/cuda/cuda_error.h"
#include "fovea/result.h"
#include "kernels/cuda/tiles/dependent_launch.h"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::mla {
namespace {

constexpr int kThreads = 256, kEach = 8;  ///< entries of a thread at a time

/// The sum of `count` over the threads before this one; `total` is that over all.
__device__ int sum_before(int count, int (&warps)[kThreads / 32], int& total) {
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / 32;
  int sum = count;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int x = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += x;
  }
  __syncthreads();  // the sums of the last call have been read
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int before = sum - count;
  total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w < warp) before += warps[w];
    total += warps[w];
  }
  return before;
}

/// Where a listed key lies, or -1.
__device__ int slot_of(const SparseLists& a, const WorkItem& token, int position) {
  if (position < 0 || position >= token.n_k) return -1;
  if (a.pages == nullptr) return static_cast<int>((token.pages + position) * a.page_units);
  const int index = a.page_size.quotient(position);
  const int slot = position - index * static_cast<int>(a.page_size.divisor);
  return static_cast<int>(__ldg(a.pages + token.pages + index) * a.page_units) + slot * a.slot_units;
}

__global__ void __launch_bounds__(kThreads) lists_kernel(const __grid_constant__ SparseLists a) {
  __shared__ int warps[kThreads / 32];
  grid_launch_dependents();
  grid_dependency_wait();
  const int tokens = *a.num_tokens, tiles = a.tiles();
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.num_items = tokens * tiles * a.splits;
  for (int i = static_cast<int>(blockIdx.x); i < tokens; i += static_cast<int>(gridDim.x)) {
    const WorkItem token = a.tokens[i];
    const int32_t* const list = a.chosen + (token.q_first + token.row_first) * a.chosen_row_stride;
    int32_t* const slots = a.slots + static_cast<int64_t>(i) * a.topk;
    int count = 0;
    for (int first = 0; first < a.topk && token.n_k != kLostKeys; first += kThreads * kEach) {
      const int begin = first + static_cast<int>(threadIdx.x) * kEach;
      int found[kEach], own = 0, total;
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        found[e] = begin + e < a.topk ? slot_of(a, token, __ldg(list + begin + e)) : -1;
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        own += found[e] >= 0 ? 1 : 0;
      int to = count + sum_before(own, warps, total);
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (found[e] >= 0) slots[to++] = found[e];
      count += total;
    }
    const bool split = token.n_q <= a.max_split_tokens;
    const int splits = split ? max(1, (count + a.split_keys - 1) / a.split_keys) : 1;
    for (int n = static_cast<int>(threadIdx.x); n < tiles * a.splits; n += kThreads) {
      const int tile = n % tiles, index = n / tiles;
      const int first = index * a.split_keys;
      WorkItem item{};
      item.seq = token.seq;
      item.row_first = tile * a.tile_rows;
      item.key_first = index < splits ? first : 0;
      item.key_last = index >= splits ? 0 : split ? min(count, first + a.split_keys) : count;
      item.pages = static_cast<int64_t>(i) * a.topk;
      item.q_first = token.q_first + token.row_first;
      item.n_q = index < splits ? 1 : 0;  // 0: nothing is computed or written
      item.n_k = token.n_k == kLostKeys ? kLostKeys : count;
      item.split = index;
      item.num_splits = index < splits ? splits : 1;
      item.partial_first =
          split ? ((token.seq * a.max_split_tokens + token.row_first) * tiles + tile) * a.splits : 0;
      item.sink_first = INT32_MAX;
      a.items[static_cast<int64_t>(i) * tiles * a.splits + n] = item;
    }
  }
}

}  // namespace

Status launch_lists(const SparseLists& lists, int max_tokens, CUstream_st* stream) {
  constexpr int kMostCtas = 1024;
  if (max_tokens == 0) return {};
  FOVEA_CUDA_TRY(launch_dependent(
      lists_kernel, {static_cast<unsigned>(std::min(max_tokens, kMostCtas)), kThreads}, stream, lists));
  return {};
}

}  // namespace fovea::cuda::mla
