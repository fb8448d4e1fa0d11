#pragma once
// Absorbed MLA for sm_90a: a work item is up to 64 packed rows of a sequence against one split of its
// records.
#include "kernels/cuda/mla/sm90_consumer.cuh"
#include "kernels/cuda/mla/sm90_gather.cuh"
#include "kernels/cuda/mla/sm90_pair.cuh"
#include "kernels/cuda/mla/sm90_producer.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::mla {

template <class Query, KeySource kSource>
__global__ __launch_bounds__(Sm90Policy::kThreads, 1) void sm90_kernel(const __grid_constant__ Sm90Params a) {
  extern __shared__ __align__(128) char unaligned[];
  const Sm90Shared shared{(shared_address(unaligned) + 1023) / 1024 * 1024};
  constexpr Sm90Policy::Registers kRegisters = Sm90Policy::registers(kSource);
  constexpr bool kGathers = gathers(kSource), kPairs = is_pairs(kSource);
  if (threadIdx.x == 0) {
    shared.init(kGathers ? kGatherThreads : Sm90Shared::kQueryWarps, kGathers ? kGatherThreads : 1,
                kPairs ? 2 : 1);
    if (!kGathers) tma_prefetch(&a.keys);
  }
  grid_launch_dependents();
  grid_dependency_wait();
  if constexpr (kPairs)
    cluster_sync();
  else
    __syncthreads();
  // Broadcast from one lane, so that the compiler knows that it is warp-uniform.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == 0) {
    registers_decrease<kRegisters.producer>();
    if constexpr (kPairs)
      Sm90Pair<Query>(a, shared).run();
    else if constexpr (kSource == KeySource::ds_mla)
      Sm90Widener<Query>(a, shared).run();
    else if constexpr (kSource == KeySource::records)
      Sm90Copier<Query>(a, shared).run();
    else
      Sm90Producer<Query>(a, shared).run();
  } else if (warpgroup == 1) {
    registers_increase<kRegisters.consumer>();
    Sm90Scorer<Query, kSource>(a, shared).run();
  } else {
    registers_increase<kRegisters.consumer>();
    Sm90Follower<Query, kSource>(a, shared).run();
  }
  if constexpr (kPairs) cluster_sync();  // the peer writes to this CTA's memory until then
}

}  // namespace fovea::cuda::mla
