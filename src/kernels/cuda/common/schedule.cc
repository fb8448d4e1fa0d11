#include "kernels/cuda/common/schedule.h"

#include <algorithm>
#include <limits>

namespace fovea::cuda {

ScheduleLimits schedule_limits(const PlanPolicy& policy, const AttentionLimits& limits) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const SplitBounds splits = split_bounds(policy, limits);
  const int64_t rows = int64_t{std::min(policy.max_split_tokens, limits.max_tokens)} * policy.group;
  const int64_t tiles_of_split = (rows + policy.tile_rows - 1) / policy.tile_rows;
  const int64_t tiles = max_tiles(policy, limits);
  int64_t by_sequences = 0, by_tiles = 0;
  if (__builtin_mul_overflow(tiles_of_split, splits.per_step, &by_sequences)) by_sequences = kMost;
  if (__builtin_mul_overflow(tiles, splits.per_tile, &by_tiles)) by_tiles = kMost;
  ScheduleLimits out;
  out.max_partials = std::min(by_sequences, by_tiles);
  if (__builtin_add_overflow(tiles, out.max_partials, &out.max_items)) out.max_items = kMost;
  out.partial_rows = static_cast<int>(std::clamp<int64_t>(rows, 1, policy.tile_rows));
  return out;
}

PlanPolicy plan_policy(const KernelInfo& kernel, int num_kv_heads, int group, int max_split_tokens,
                       const MaskSpec& mask, int draft_tokens) {
  PlanPolicy policy;
  policy.num_kv_heads = num_kv_heads;
  policy.group = group;
  policy.tile_rows = kernel.rows;
  policy.block_keys = kernel.tile_keys;
  policy.split_keys = kernel.split_keys;
  policy.max_split_tokens = max_split_tokens;
  policy.draft_tokens = draft_tokens;
  policy.mask = mask;
  return policy;
}

}  // namespace fovea::cuda
