#pragma once
// The kernel of a policy: blocks take items under a KV head in turn.
#include "kernels/cuda/portable/float_kernel.cuh"
#include "kernels/cuda/portable/mma_kernel.cuh"

namespace fovea::cuda::portable {

template <class P>
__global__ __launch_bounds__(P::kThreads,
                             P::kBlocksPerSm) void attention_kernel(const __grid_constant__ AttentionParams p,
                                                                    const __grid_constant__ Access access) {
  extern __shared__ __align__(128) char shared[];
  __shared__ WorkItem item;
  const int heads = static_cast<int>(p.kv_heads.divisor);
  const int64_t units = static_cast<int64_t>(*p.num_items) * heads;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int index = static_cast<int>(unit / heads),
              head = static_cast<int>(unit - static_cast<int64_t>(index) * heads);
    if (unit != blockIdx.x) __syncthreads();  // the last unit has been read
    // In shared memory, because registers are what O and the scores need.
    if (threadIdx.x < sizeof(WorkItem) / 4)
      reinterpret_cast<uint32_t*>(&item)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(p.items + index)[threadIdx.x];
    __syncthreads();
    using Unit = std::conditional_t<P::kFloat, FloatUnit<P>, MmaUnit<P>>;
    Unit{p, access, item, head, shared}.run();
  }
}

}  // namespace fovea::cuda::portable
