#include "kernels/cuda/plan/plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "fovea/result.h"
#include "kernels/cuda/plan/plan-inl.h"

namespace fovea::cuda {
namespace {

// Rows and (tile, KV head) pairs are counted in 32 bits.
constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

std::string str(int64_t x) {
  return std::to_string(x);
}

Status check_policy(const PlanPolicy& p) {
  if (p.num_kv_heads < 1 || p.group < 1 || p.tile_rows < 1 || p.max_split_tokens < 0 || p.draft_tokens < 0)
    return invalid("attention plan: kv heads, group and tile rows must be at least 1, split tokens 0; " +
                   str(p.num_kv_heads) + ", " + str(p.group) + ", " + str(p.tile_rows) + " and " +
                   str(p.max_split_tokens) + " are given");
  if (p.block_keys < 1 || p.split_keys < 1 || p.split_keys % p.block_keys != 0)
    return invalid("attention plan: split_keys " + str(p.split_keys) +
                   " must be a positive multiple of block_keys " + str(p.block_keys));
  return {};
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// The most keys from the first to the last that a row tile of a split sequence sees, without sink tokens.
int64_t longest_span(const PlanPolicy& p, const AttentionLimits& limits) {
  const MaskSpec& mask = p.mask;
  int64_t span = limits.max_kv_len;
  if (mask.spans) return span;
  const int64_t tokens = std::min(p.max_split_tokens, limits.max_tokens);
  if (mask.window_left >= 0 && (mask.causal || mask.window_right >= 0))
    span = std::min(span, int64_t{mask.window_left} + std::max(mask.window_right, 0) + tokens);
  if (mask.chunk > 0) span = std::min(span, int64_t{mask.chunk} + tokens - 1);
  return span;
}

std::string describe(const AttentionLimits& limits) {
  return "attention plan for " + str(limits.max_seqs) + " sequences, " + str(limits.max_tokens) +
         " query rows, " + str(limits.max_kv_tokens) + " keys, longest " + str(limits.max_kv_len);
}

/// Row tiles of a sequence.
int32_t num_tiles(const PlanPolicy& policy, int32_t n_q) {
  return static_cast<int32_t>(ceil_div(int64_t{n_q} * policy.group, policy.tile_rows));
}

PlanTile make_tile(const PlanPolicy& policy, const PlanInput& in, int most_rows, int32_t seq, int32_t index) {
  PlanTile tile;
  tile.seq = seq;
  tile.q_row = in.q_offsets[seq];
  tile.n_q = in.q_offsets[seq + 1] - tile.q_row;
  tile.n_k = in.kv_lens[seq];
  tile.row = index * policy.tile_rows;
  tile.rows = std::min(tile.n_q * policy.group - tile.row, policy.tile_rows);
  const PlanDivide divide{policy, quotient(policy.split_keys, policy.block_keys)};
  set_blocks(policy, divide, tile_keys<false>(policy, divide, in, tile), tile);
  set_splits(most_rows, divide, divide.blocks_per_split, tile);
  return tile;
}

}  // namespace

int64_t max_tiles(const PlanPolicy& policy, const AttentionLimits& limits) {
  // ceil(a / t) is at most floor(a / t) + 1 for each sequence that has rows.
  return int64_t{limits.max_tokens} * policy.group / policy.tile_rows +
         std::min(limits.max_seqs, limits.max_tokens);
}

SplitBounds split_bounds(const PlanPolicy& p, const AttentionLimits& limits) {
  const int64_t c = p.split_keys;
  if (limits.max_kv_len <= c) return {};
  SplitBounds out;
  out.per_tile = ceil_div(limits.max_kv_len, c);
  const int64_t span = longest_span(p, limits);
  if (span < limits.max_kv_len)  // anywhere between borders, and the sink tokens' own
    out.per_tile = std::min(
        out.per_tile, ceil_div(std::max<int64_t>(span - 1, 0), c) + 1 + ceil_div(p.mask.sink_tokens, c));
  const int64_t seqs = std::min(limits.max_seqs, limits.max_tokens);
  const int64_t keys = std::min(limits.max_kv_tokens, seqs * limits.max_kv_len);
  const int64_t split = std::min(seqs, keys / (c + 1));
  out.per_step = std::min((keys - split) / c + split, seqs * out.per_tile);
  if (split == 0) out.per_step = 0;
  return out;
}

Status check_plan_limits(const PlanPolicy& policy, const AttentionLimits& limits) {
  FOVEA_RETURN_IF_ERROR(check_policy(policy));
  if (limits.max_seqs < 0 || limits.max_tokens < 0 || limits.max_kv_tokens < 0 || limits.max_kv_len < 0)
    return invalid("attention plan: limits must not be negative");
  const int64_t packed = int64_t{limits.max_tokens} * policy.group;
  if (packed > kMaxCount - policy.tile_rows || packed * policy.num_kv_heads > kMaxCount ||
      max_tiles(policy, limits) * policy.num_kv_heads >= kMaxCount ||
      int64_t{limits.max_kv_len} + policy.split_keys > kMaxCount)
    return invalid(describe(limits) +
                   ": rows times heads and the longest sequence must be below 2^31; lower the limits");
  return {};
}

HostPlan make_plan_on_host(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input,
                           const PartialRoom& room) {
  FOVEA_CHECK(input.num_seqs >= 0 && input.num_seqs <= limits.max_seqs);
  HostPlan plan;
  const PlanDivide divide{policy, quotient(policy.split_keys, policy.block_keys)};
  int64_t kv_tokens = 0, partials = 0;
  for (int32_t b = 0; b < input.num_seqs; ++b) {
    int32_t keys = 0;
    plan.error = std::max(plan.error, sequence_error(limits, input, b, keys));
    kv_tokens += keys;
    if (plan.error == PlanError::none)
      partials += draft_partials(policy, divide, divide.blocks_per_split, room,
                                 input.q_offsets[b + 1] - input.q_offsets[b], keys);
  }
  const int most_rows = split_tokens(policy, room, partials);
  if (plan.error == PlanError::none && kv_tokens > limits.max_kv_tokens) plan.error = PlanError::kv_tokens;
  if (plan.error != PlanError::none) return plan;
  for (int32_t b = 0; b < input.num_seqs; ++b)
    for (int32_t i = num_tiles(policy, input.q_offsets[b + 1] - input.q_offsets[b]) - 1; i >= 0; --i)
      plan.tiles.push_back(make_tile(policy, input, most_rows, b, i));
  return plan;
}

Status check_plan_input(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input) {
  if (input.num_seqs < 0 || input.num_seqs > limits.max_seqs)
    return invalid("a step of " + str(input.num_seqs) + " sequences exceeds the limit of " +
                   str(limits.max_seqs));
  if (input.num_seqs > 0 && (input.q_offsets == nullptr || input.kv_lens == nullptr ||
                             (policy.mask.spans && input.span_offsets == nullptr)))
    return invalid("a step needs q_offsets and kv_lens, and with a mask of spans span_offsets");
  return {};
}

Error plan_error(PlanError error, const AttentionLimits& limits) {
  switch (error) {
    case PlanError::none: break;
    case PlanError::q_offsets: return invalid("q_offsets must begin with 0 and not decrease");
    case PlanError::too_many_rows:
      return invalid("q_offsets ends beyond the limit of " + str(limits.max_tokens) + " query rows");
    case PlanError::kv_len:
      return invalid("a kv_len is not in 0 to " + str(limits.max_kv_len) + ", the limit of a sequence");
    case PlanError::kv_tokens:
      return invalid("the sum of kv_lens exceeds the limit of " + str(limits.max_kv_tokens) + " keys");
    case PlanError::pages: return invalid("a page id is none of the cache's");
  }
  return {ErrorCode::internal, "attention plan: error " + str(static_cast<int>(error))};
}

}  // namespace fovea::cuda
