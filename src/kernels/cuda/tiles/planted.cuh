#pragma once
// The defects of base/mutation.h that several kernels share. Without FOVEA_MUTATIONS each function returns
// its argument.
#include <cstdint>

#include "base/mutation.h"

namespace fovea::cuda {

/// The weight of partial result `part` of `parts` in a combine kernel.
__device__ __forceinline__ float planted_weight(float weight, int part, int parts) {
  if (mutated(Mutation::merge_unscaled)) return 1.0f;
  if (part + 1 == parts && mutated(Mutation::split_twice)) return 2.0f * weight;
  if (part + 1 == parts && mutated(Mutation::split_lost)) return 0.0f;
  return weight;
}

/// The same in an attention kernel that combines partial results itself.
__device__ __forceinline__ float planted_combine_weight(float weight, int part, int parts) {
  if (mutated(Mutation::fused_combine_unscaled)) return 1.0f;
  if (part + 1 == parts && mutated(Mutation::fused_combine_twice)) return 2.0f * weight;
  if (part + 1 == parts && mutated(Mutation::fused_combine_lost)) return 0.0f;
  return weight;
}

/// The weight of a warp's keys in the sum of a CTA.
__device__ __forceinline__ float planted_group_weight(float weight, int group, int groups) {
  return group + 1 == groups && mutated(Mutation::group_lost) ? 0.0f : weight;
}

/// The sum of a row's weights in prefill.
__device__ __forceinline__ float planted_sum(float sum) {
  return mutated(Mutation::prefill_sum) ? 1.05f * sum : sum;
}

/// Offset of a key in the cache, in bytes. The defective one lies inside the cache too.
template <Mutation M = Mutation::offsets_of_32_bits>
__device__ __forceinline__ int64_t planted_offset(int64_t bytes) {
  return mutated(M) ? bytes & INT32_MAX : bytes;
}

/// Whether a kernel is missing from the table of kernels that can be launched.
template <class Info>
bool planted_gap(const Info& kernel) {
  using Kind = decltype(kernel.kind);
  if (kernel.kind == Kind::decode) return mutated(Mutation::instance_missing) && kernel.head_dim == 128;
  return mutated(Mutation::prefill_instance_missing) && kernel.head_dim == 64;
}

}  // namespace fovea::cuda
