#include <cuda_runtime.h>

#include "tune/cuda/compare.h"

namespace fovea::tune {
namespace {

constexpr unsigned kBlocks = 1024, kThreads = 256;

__global__ void compare_kernel(const uint32_t* a, const uint32_t* b, size_t words,
                               unsigned long long* differ) {
  unsigned long long count = 0;
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < words; i += size_t{kBlocks} * kThreads)
    count += a[i] != b[i];
  if (count != 0) atomicAdd(differ, count);
}

__global__ void fill_kernel(uint32_t* to, size_t words, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{kThreads} + threadIdx.x; i < words; i += size_t{kBlocks} * kThreads) {
    uint32_t state = (static_cast<uint32_t>(i) ^ seed) * 2654435761u;
    state ^= state >> 15;
    state *= 2246822519u;
    state ^= state >> 13;
    to[i] = 0x3c003c00u | (state & 0x80ff80ffu);
  }
}

}  // namespace

int count_different_words(const void* a, const void* b, size_t words, unsigned long long* differ,
                          CUstream_st* stream) {
  compare_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const uint32_t*>(a),
                                                   static_cast<const uint32_t*>(b), words, differ);
  return static_cast<int>(cudaGetLastError());
}

int fill_random(void* to, size_t words, uint32_t seed, CUstream_st* stream) {
  fill_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<uint32_t*>(to), words, seed);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace fovea::tune
