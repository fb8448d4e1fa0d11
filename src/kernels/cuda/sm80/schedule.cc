#include "kernels/cuda/sm80/schedule.h"

namespace fovea::cuda::sm80 {

ScheduleLimits schedule_limits(const PlanPolicy& policy, const PlanLayout& layout) {
  // A sequence that may be split has up to `tiles` tiles, each of n_k / split_keys chunks and two begun ones
  // (the first of the window, and the last); sink tokens may add their own.
  const int64_t rows = int64_t{policy.max_split_tokens} * policy.group;
  const int64_t tiles = (rows + policy.tile_rows - 1) / policy.tile_rows;
  const int64_t sinks = policy.mask.sink_tokens / policy.split_keys + 1;
  const int64_t chunks =
      tiles * (layout.limits.max_kv_tokens / policy.split_keys + (2 + sinks) * layout.limits.max_seqs);
  ScheduleLimits limits;
  limits.max_items = layout.max_tiles + chunks;
  limits.max_parts = chunks;
  return limits;
}

PlanPolicy plan_policy(const KernelInfo& kernel, int num_kv_heads, int group, int max_split_tokens,
                       const MaskSpec& mask) {
  PlanPolicy policy;
  policy.num_kv_heads = num_kv_heads;
  policy.group = group;
  policy.tile_rows = kernel.rows;
  policy.block_keys = kernel.tile_keys;
  policy.split_keys = kernel.split_keys;
  policy.max_split_tokens = max_split_tokens;
  policy.mask = mask;
  return policy;
}

}  // namespace fovea::cuda::sm80
