#pragma once
// Prefill (extend) for sm_90a: tiles of packed query rows against all keys that they see. Blocks stay and
// take units (an item under one KV head) as they come for them.
#include "kernels/cuda/sm90/prefill_consumer.cuh"
#include "kernels/cuda/sm90/prefill_producer.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm90 {

#ifdef CLOCK
__device__ long long prefill_clock[2];
__device__ inline long long global_time() { long long t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
#endif
template <class P>
__global__ __launch_bounds__(P::kThreads, 1) void prefill_kernel(const __grid_constant__ PrefillParams a) {
  extern __shared__ __align__(128) char unaligned[];
  const uint32_t padding = (1024 - shared_address(unaligned) % 1024) % 1024;
  char* const generic = unaligned + padding;
  const PrefillShared<P> shared{shared_address(unaligned) + padding};
  if (threadIdx.x == 0) shared.init(a.loads);
  grid_launch_dependents();
  grid_dependency_wait();
  __syncthreads();
  // From one lane, so that all that follows from it is known to be the same in a warp.
#ifdef CLOCK
  const long long c0 = clock64(), t0 = global_time();
#endif
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == 0) {
    registers_decrease<P::kProducerRegisters>();
    
#ifndef NOPROD
    if (a.loads.key_boxes)
      PrefillProducer<P, true>(a, shared, generic).run();
    else
      PrefillProducer<P, false>(a, shared, generic).run();
#endif
  } else {
    registers_increase<P::kConsumerRegisters>();
    
#ifndef NOCONS
    PrefillConsumer<P>(a, shared, generic, warpgroup - 1).run();
#endif
  }
#ifdef CLOCK
  if (blockIdx.x == 0 && threadIdx.x == 128) prefill_clock[0] = clock64() - c0, prefill_clock[1] = global_time() - t0;
#endif
}

}  // namespace fovea::cuda::sm90
