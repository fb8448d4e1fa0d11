#pragma once
// Prefill over e4m3 queries, keys and values (sm_90a), and the pass in front that transposes values.
#include "kernels/cuda/sm90/prefill_e4m3_consumer.cuh"
#include "kernels/cuda/sm90/prefill_producer.cuh"
#include "kernels/cuda/tiles/grid_dependency.cuh"

namespace fovea::cuda::sm90 {

/// Strides of params.a.p are those of words of 16 bits: a row of 128 e4m3 is 64 words.
template <class P>
__global__ __launch_bounds__(P::kThreads,
                             1) void prefill_e4m3_kernel(const __grid_constant__ PrefillE4m3Params params) {
  using Words = typename P::Words;
  extern __shared__ __align__(128) char unaligned[];
  const uint32_t padding = (1024 - shared_address(unaligned) % 1024) % 1024;
  char* const generic = unaligned + padding;
  const PrefillShared<Words> shared{shared_address(unaligned) + padding};
  if (threadIdx.x == 0) shared.init(params.a.loads);
  grid_launch_dependents();
  grid_dependency_wait();
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == 0) {
    registers_decrease<Words::kProducerRegisters>();
    PrefillProducer<Words, LoadMode::tma>(params.a, shared, generic).run();
  } else {
    registers_increase<Words::kConsumerRegisters>();
    const int index = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0) - 1;
    PrefillE4m3Consumer<P>(params, shared, generic, index).run();
  }
}

/// The bytes of word q of the 16-byte chunk of each of 4 dims, from the words (4 dims) of 16 keys: keys 2 q,
/// 2 q + 1, 2 q + 8, 2 q + 9, in which order the accumulators of scores are packed as operand A.
FOVEA_DEVICE void transpose_values(const uint32_t (&key)[16], uint32_t (&chunk)[4][4]) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const uint32_t a = key[2 * q], b = key[2 * q + 1], c = key[2 * q + 8], d = key[2 * q + 9];
    const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
    const uint32_t ab2 = __byte_perm(a, b, 0x7362), cd2 = __byte_perm(c, d, 0x7362);
    chunk[0][q] = __byte_perm(ab, cd, 0x5410);
    chunk[1][q] = __byte_perm(ab, cd, 0x7632);
    chunk[2][q] = __byte_perm(ab2, cd2, 0x5410);
    chunk[3][q] = __byte_perm(ab2, cd2, 0x7632);
  }
}
/// Where dim d of keys 16 n .. 16 n + 15 of a tile begins in the space, so that TMA's 128-byte swizzle puts
/// it where PrefillE4m3Consumer::add_values reads it.
FOVEA_DEVICE uint32_t transposed_offset(int n, int d) {
  const uint32_t at = static_cast<uint32_t>(n / 2 * 4096 + d / 8 * 256 + n % 2 * 128 + d % 8 * 16);
  return at ^ ((at >> 7 & 7) << 4);
}

}  // namespace fovea::cuda::sm90
