#include "kernels/cuda/sm80/schedule.h"

#include <algorithm>

namespace fovea::cuda::sm80 {

ScheduleLimits schedule_limits(const PlanPolicy& policy, const PlanLayout& layout) {
  // Chunks lie at absolute multiples, those of sink tokens too: a tile has at most ceil(n_k / split_keys),
  // and parts when these are 2 or more. A sequence that may be split has up to `tiles` tiles.
  const AttentionLimits& most = layout.limits;
  const int64_t split = policy.split_keys;
  const int64_t rows = int64_t{policy.max_split_tokens} * policy.group;
  const int64_t tiles = (rows + policy.tile_rows - 1) / policy.tile_rows;
  int64_t chunks = 0;
  if (most.max_kv_len > split) {
    const int64_t longest = (most.max_kv_len + split - 1) / split;
    const int64_t split_seqs = std::min<int64_t>(most.max_seqs, most.max_kv_tokens / (split + 1));
    const int64_t of_all = most.max_kv_tokens / split + split_seqs;  // chunks of one tile of each sequence
    chunks = std::min({tiles * of_all, tiles * split_seqs * longest, layout.max_tiles * longest});
  }
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
