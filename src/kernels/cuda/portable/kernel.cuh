#pragma once
// The kernel of a policy: CTAs take work tiles (a WorkItem under one KV head) by stride.
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
  const int64_t work_tiles = static_cast<int64_t>(*p.num_items) * heads;
  for (int64_t work_index = blockIdx.x; work_index < work_tiles; work_index += gridDim.x) {
    const int index = static_cast<int>(work_index / heads),
              head = static_cast<int>(work_index - static_cast<int64_t>(index) * heads);
    if (work_index != blockIdx.x) __syncthreads();  // the previous item has been read
    // In shared memory, because O and the scores need the registers.
    if (threadIdx.x < sizeof(WorkItem) / 4)
      reinterpret_cast<uint32_t*>(&item)[threadIdx.x] =
          reinterpret_cast<const uint32_t*>(p.items + index)[threadIdx.x];
    __syncthreads();
    using WorkTile = std::conditional_t<P::kFloat, FloatWorkTile<P>, MmaWorkTile<P>>;
    WorkTile{p, access, item, head, shared}.run();
  }
}

}  // namespace fovea::cuda::portable
