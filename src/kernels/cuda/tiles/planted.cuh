#pragma once
// Where the defects of base/mutation.h that several kernels have are planted. Without FOVEA_MUTATIONS each
// gives what it is given.
#include <cstdint>

#include "base/mutation.h"

namespace fovea::cuda {

/// What part `part` of `parts` counts where a kernel of its own merges parts.
__device__ __forceinline__ float planted_weight(float weight, int part, int parts) {
  if (mutated(Mutation::merge_unscaled)) return 1.0f;
  if (part + 1 == parts && mutated(Mutation::split_twice)) return 2.0f * weight;
  if (part + 1 == parts && mutated(Mutation::split_lost)) return 0.0f;
  return weight;
}

/// Likewise where the attention kernel does.
__device__ __forceinline__ float planted_combine_weight(float weight, int part, int parts) {
  if (mutated(Mutation::fold_unscaled)) return 1.0f;
  if (part + 1 == parts && mutated(Mutation::fold_twice)) return 2.0f * weight;
  if (part + 1 == parts && mutated(Mutation::fold_lost)) return 0.0f;
  return weight;
}

/// What a warp's keys count in a block's sum.
__device__ __forceinline__ float planted_group_weight(float weight, int group, int groups) {
  return group + 1 == groups && mutated(Mutation::group_lost) ? 0.0f : weight;
}

/// The sum of a row's weights in prefill.
__device__ __forceinline__ float planted_sum(float sum) {
  return mutated(Mutation::prefill_sum) ? 1.05f * sum : sum;
}

/// Of a key in the cache, in bytes. The wrong one is inside of the cache too.
template <Mutation M = Mutation::offsets_of_32_bits>
__device__ __forceinline__ int64_t planted_offset(int64_t bytes) {
  return mutated(M) ? bytes & INT32_MAX : bytes;
}

/// Whether a kernel is missing in the table of those that can be launched.
template <class Info>
bool planted_gap(const Info& kernel) {
  using Kind = decltype(kernel.kind);
  if (kernel.kind == Kind::decode) return mutated(Mutation::instance_missing) && kernel.head_dim == 128;
  return mutated(Mutation::prefill_instance_missing) && kernel.head_dim == 64;
}

}  // namespace fovea::cuda
