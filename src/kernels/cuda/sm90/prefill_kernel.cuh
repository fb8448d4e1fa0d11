#pragma once
// Prefill (extend) for sm_90a: tiles of packed query rows against all keys that they see. The grid is
// persistent; CTAs fetch work tiles (a work item under one KV head) dynamically.
#include "kernels/cuda/sm90/prefill_consumer.cuh"
#include "kernels/cuda/sm90/prefill_producer.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm90 {

template <class P, LoadMode kLoadMode, bool kSoftcap>
__global__ __launch_bounds__(P::kThreads, 1) void prefill_kernel(const __grid_constant__ PrefillParams a) {
  extern __shared__ __align__(128) char unaligned[];
  const uint32_t padding = (1024 - shared_address(unaligned) % 1024) % 1024;
  char* const generic = unaligned + padding;
  const PrefillShared<P> shared{shared_address(unaligned) + padding};
  if (threadIdx.x == 0) shared.init(a.loads);
  grid_launch_dependents();
  grid_dependency_wait();
  __syncthreads();
  // Broadcast from one lane, so that the compiler knows that it is warp-uniform.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == 0) {
    registers_decrease<P::kProducerRegisters>();
    PrefillProducer<P, kLoadMode>(a, shared, generic).run();
  } else {
    registers_increase<P::kConsumerRegisters>();
    // Computed again, which saves a register.
    const int index = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0) - 1;
    PrefillConsumer<P, kLoadMode, kSoftcap>(a, shared, generic, index).run();
  }
}

}  // namespace fovea::cuda::sm90
