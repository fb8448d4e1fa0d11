#pragma once
// The CTAs that work on one row: a cluster, or a single CTA; reductions and scans over a CTA's threads.
#include <cstdint>

namespace fovea::cuda::sampling {

constexpr unsigned kAllLanes = 0xffffffffu;

/// `kCluster` CTAs: a cluster of Hopper, or one.
template <int kCluster>
struct Group {
  static constexpr int kThreads = kCluster == 1 ? 1024 : 512;  // of a CTA
  static constexpr int kWarps = kThreads / 32;

  __device__ static int rank() {
    if constexpr (kCluster == 1) {
      return 0;
    } else {
      uint32_t rank;
      asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
      return static_cast<int>(rank);
    }
  }
  /// All threads of all CTAs; shared memory written before is visible after.
  __device__ static void sync() {
    if constexpr (kCluster == 1)
      __syncthreads();
    else
      asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
  }
  /// The address of the same variable in CTA `rank`'s shared memory.
  template <class T>
  __device__ static T* of(T* mine, int rank) {
    if constexpr (kCluster == 1) {
      return mine;
    } else {
      uint64_t address;
      asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(mine), "r"(rank));
      return reinterpret_cast<T*>(address);
    }
  }
};

__device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x) % 32;
}
__device__ inline int warp_id() {
  return static_cast<int>(threadIdx.x) / 32;
}

/// op over all threads of the CTA, in every thread. Ends with a barrier, so that `scratch` [kWarps] is free.
template <int kWarps, class T, class Op>
__device__ T reduce_block(T value, T* scratch, const Op& op) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    value = op(value, static_cast<T>(__shfl_xor_sync(kAllLanes, value, step)));
  if (lane_id() == 0) scratch[warp_id()] = value;
  __syncthreads();
  value = scratch[lane_id() % kWarps];
#pragma unroll
  for (int step = kWarps / 2; step > 0; step /= 2)
    value = op(value, static_cast<T>(__shfl_xor_sync(kAllLanes, value, step)));
  __syncthreads();
  return value;
}

/// Sum of `value` over the threads before this one, and `total` over all. Ends with a barrier.
template <int kWarps>
__device__ uint64_t scan_block(uint64_t value, uint64_t* scratch, uint64_t& total) {
  uint64_t sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane_id() >= step) sum += other;
  }
  if (lane_id() == 31) scratch[warp_id()] = sum;
  __syncthreads();
  uint64_t warps = scratch[lane_id() % kWarps];  // each warp adds up all warps' sums
#pragma unroll
  for (int step = 1; step < kWarps; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, warps, step);
    if (lane_id() % kWarps >= step) warps += other;
  }
  total = __shfl_sync(kAllLanes, warps, kWarps - 1);
  const uint64_t before = __shfl_sync(kAllLanes, warps, warp_id() > 0 ? warp_id() - 1 : 0);
  __syncthreads();
  return (warp_id() > 0 ? before : 0) + sum - value;
}

struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Or {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};
struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace fovea::cuda::sampling
