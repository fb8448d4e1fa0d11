#include "kernels/cuda/sm80/schedule.h"

#include <cuda_runtime.h>

#include <string>

namespace fovea::cuda::sm80 {
namespace {

constexpr int kThreads = 512;

/// Sums before this thread's, and all; two barriers.
__device__ int2 exclusive_scan(int2 mine, int2* warps, int2& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int2 sum = mine;
  for (int step = 1; step < 32; step *= 2) {
    const int x = __shfl_up_sync(~0u, sum.x, step), y = __shfl_up_sync(~0u, sum.y, step);
    if (lane >= step) sum.x += x, sum.y += y;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  int2 before = make_int2(0, 0);
  total = make_int2(0, 0);
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) before = total;
    total.x += warps[w].x, total.y += warps[w].y;
  }
  __syncthreads();
  return make_int2(before.x + sum.x - mine.x, before.y + sum.y - mine.y);
}

__global__ __launch_bounds__(kThreads) void schedule_kernel(const __grid_constant__ PlanPolicy policy,
                                                            const __grid_constant__ PlanInput in,
                                                            const __grid_constant__ PlanView plan,
                                                            const __grid_constant__ PageSource pages,
                                                            WorkItem* items, int32_t* num_items,
                                                            uint32_t* arrivals) {
  __shared__ int2 warps[kThreads / 32];
  __shared__ int2 before[kThreads];  // items and parts before each tile of a round
  int2 done = make_int2(0, 0);
  const int tiles = plan.header->tiles;
  for (int first = 0; first < tiles; first += kThreads) {
    const int tile = first + static_cast<int>(threadIdx.x);
    const int chunks = tile < tiles ? plan.tiles[tile].chunks : 0;
    int2 total;
    before[threadIdx.x] = exclusive_scan(make_int2(chunks, chunks > 1 ? chunks : 0), warps, total);
    __syncthreads();
    const int count = min(kThreads, tiles - first);
    for (int i = static_cast<int>(threadIdx.x); i < total.x; i += kThreads) {
      int low = 0, high = count;  // the last tile with before.x <= i
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (before[middle].x <= i)
          low = middle;
        else
          high = middle;
      }
      items[done.x + i] =
          make_item(policy, in, pages, plan.tiles[first + low], i - before[low].x, done.y + before[low].y);
    }
    done.x += total.x, done.y += total.y;
    __syncthreads();
  }
  if (threadIdx.x == 0) *num_items = done.x;
  if (arrivals == nullptr) return;
  const int64_t counters = static_cast<int64_t>(done.y) * policy.num_kv_heads;
  for (int64_t i = threadIdx.x; i < counters; i += kThreads)
    arrivals[i] = 0;
}

}  // namespace

Status launch_schedule(const PlanPolicy& policy, const PlanInput& input, const PlanView& plan,
                       const PageSource& pages, WorkItem* items, int32_t* num_items, CUstream_st* stream,
                       uint32_t* arrivals) {
  schedule_kernel<<<1, kThreads, 0, stream>>>(policy, input, plan, pages, items, num_items,
                                               arrivals);
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    return Error{ErrorCode::internal,
                 std::string("launch of the sm80 schedule: ") + cudaGetErrorString(code)};
  return {};
}

}  // namespace fovea::cuda::sm80
