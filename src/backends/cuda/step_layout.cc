#include "backends/cuda/step_layout.h"

#include <limits>
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/common/schedule.h"

namespace fovea::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Sparse: an item for each token, which is not split.
PlanPolicy policy_of(const AttentionSpec& spec, const KernelChoice& choice) {
  if (spec.use_sparse) {
    KernelInfo tokens = choice.kernel;
    tokens.rows = 1;
    return plan_policy(tokens, 1, 1, 0, spec.mask);
  }
  return plan_policy(choice.kernel, spec.num_kv_heads, spec.num_heads / spec.num_kv_heads,
                     choice.max_split_tokens, spec.mask, choice.draft_tokens);
}

/// Bytes of one part.
int64_t part_bytes(const AttentionSpec& spec, const KernelChoice& choice, int partial_rows) {
  return int64_t{spec.num_kv_heads} * partial_rows *
         static_cast<int64_t>(sizeof(PartialState) +
                              static_cast<size_t>(choice.kernel.v_head_dim) * sizeof(float));
}

/// Splits of a whole list.
int list_splits(const AttentionSpec& spec, const KernelChoice& choice) {
  if (choice.max_split_tokens == 0) return 1;
  return (spec.sparse_topk + choice.kernel.split_keys - 1) / choice.kernel.split_keys;
}

int head_tiles(const AttentionSpec& spec, const KernelChoice& choice) {
  return (spec.num_heads + choice.kernel.rows - 1) / choice.kernel.rows;
}

/// Partial results of tokens of the sequences that are split: those of a token, for each.
int64_t list_partials(const AttentionSpec& spec, const KernelChoice& choice, const AttentionLimits& limits) {
  const int splits = list_splits(spec, choice);
  if (splits == 1) return 0;
  return int64_t{limits.max_seqs} * choice.max_split_tokens * head_tiles(spec, choice) * splits;
}

}  // namespace

int64_t partial_bytes(const AttentionSpec& spec, const KernelChoice& choice, const AttentionLimits& limits) {
  int64_t bytes = 0;
  if (spec.use_sparse)
    return __builtin_mul_overflow(list_partials(spec, choice, limits),
                                  part_bytes(spec, choice, choice.kernel.rows), &bytes)
               ? std::numeric_limits<int64_t>::max()
               : bytes;
  const ScheduleLimits most = schedule_limits(policy_of(spec, choice), limits);
  return __builtin_mul_overflow(most.max_partials, part_bytes(spec, choice, most.partial_rows), &bytes)
             ? std::numeric_limits<int64_t>::max()
             : bytes;
}

Result<StepLayout> step_layout(const AttentionSpec& spec, const KernelChoice& choice,
                               const AttentionLimits& limits) {
  StepLayout out;
  out.policy = policy_of(spec, choice);
  out.limits = limits;
  FOVEA_RETURN_IF_ERROR(check_plan_limits(out.policy, limits));
  const ScheduleLimits most = schedule_limits(out.policy, limits);
  // Kernels count (item, kv head) in 32 bits, and overshoot the last by up to twice the blocks of a launch.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() - (1 << 16);
  if (most.max_items > kMost / spec.num_kv_heads)
    return invalid("attention limits of " + std::to_string(limits.max_seqs) + " sequences, " +
                   std::to_string(limits.max_tokens) + " query rows and " +
                   std::to_string(limits.max_kv_tokens) + " keys may give " + std::to_string(most.max_items) +
                   " work items under " + std::to_string(spec.num_kv_heads) + " KV heads; at most " +
                   std::to_string(kMost) + " can be counted: lower the limits");
  out.max_items = most.max_items;
  out.max_partials = most.max_partials;
  out.partial_rows = most.partial_rows;
  if (spec.use_sparse) {
    out.head_tiles = head_tiles(spec, choice);
    out.list_splits = list_splits(spec, choice);
    out.max_partials = list_partials(spec, choice, limits);
    out.partial_rows = choice.kernel.rows;
    if (most.max_items > kMost / (int64_t{out.head_tiles} * out.list_splits))
      return invalid("attention limits of " + std::to_string(limits.max_tokens) + " query rows under " +
                     std::to_string(spec.num_heads) + " heads are more than " + std::to_string(kMost) +
                     " work items; lower the limits");
  }
  const auto parts = static_cast<size_t>(out.max_partials * spec.num_kv_heads * out.partial_rows);
  out.error = sizeof(int32_t);
  out.page_fault = 64;
  out.queue = 128;
  out.bad_pages = kAlignment;
  out.items = out.bad_pages + aligned(static_cast<size_t>(limits.max_seqs));
  out.arrivals = out.items + aligned(static_cast<size_t>(most.max_items) * sizeof(WorkItem));
  const int64_t counters = choice.kernel.fused_combine ? most.max_partials * spec.num_kv_heads : 0;
  out.partial_state = out.arrivals + aligned(static_cast<size_t>(counters) * sizeof(uint32_t));
  out.partial_out = out.partial_state + aligned(parts * sizeof(PartialState));
  out.bytes =
      out.partial_out + aligned(parts * static_cast<size_t>(choice.kernel.v_head_dim) * sizeof(float));
  if (spec.use_sparse) {
    const auto tokens = static_cast<size_t>(most.max_items);
    out.num_list_items = 192;
    out.list_items = out.bytes;
    out.slots = out.list_items + aligned(tokens * static_cast<size_t>(out.head_tiles) *
                                         static_cast<size_t>(out.list_splits) * sizeof(WorkItem));
    out.bytes = out.slots + aligned(tokens * static_cast<size_t>(spec.sparse_topk) * sizeof(int32_t));
  }
  if (choice.family != Family::sm90 || !sm90::is_widened(choice.kernel, is_x_packed(spec))) return out;
  out.widen = sm90::widen_layout(choice.kernel, spec.num_kv_heads, limits, most.max_items);
  if (out.widen.rows > sm90::kMostWidenedRows)
    return invalid("attention limits of " + std::to_string(limits.max_kv_tokens) + " keys, of " +
                   std::to_string(limits.max_kv_len) + " in one sequence, are " +
                   std::to_string(out.widen.rows) +
                   " rows of an 8-bit or packed cache to widen at once; at most " +
                   std::to_string(sm90::kMostWidenedRows) + " can be counted: lower the limits");
  out.widened = out.bytes;
  out.bytes += aligned(out.widen.bytes);
  return out;
}

}  // namespace fovea::cuda
