#include "backends/cuda/step_layout.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/cuda/sm80/schedule.h"

namespace fovea::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<StepLayout> step_layout(const AttentionSpec& spec, const KernelChoice& choice,
                               const AttentionLimits& limits) {
  StepLayout out;
  out.policy = sm80::plan_policy(choice.kernel, spec.num_kv_heads, spec.num_heads / spec.num_kv_heads,
                                 choice.max_split_tokens, spec.mask);
  FOVEA_TRY(plan, plan_layout(out.policy, limits, spec.v_head_dim));
  out.plan = plan;
  const sm80::ScheduleLimits most = sm80::schedule_limits(out.policy, plan);
  // Kernels count (item, kv head) in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (most.max_items > kMost / spec.num_kv_heads)
    return invalid("attention limits of " + std::to_string(limits.max_seqs) + " sequences, " +
                   std::to_string(limits.max_tokens) + " query rows and " +
                   std::to_string(limits.max_kv_tokens) + " keys may give " + std::to_string(most.max_items) +
                   " work items under " + std::to_string(spec.num_kv_heads) +
                   " KV heads; at most 2147483647 can be counted: lower the limits");
  out.max_items = most.max_items;
  out.max_parts = most.max_parts;
  const auto items = static_cast<size_t>(most.max_items), parts = static_cast<size_t>(most.max_parts);
  const size_t part_rows = parts * static_cast<size_t>(spec.num_kv_heads * choice.kernel.rows);
  // The planner's own partial results are its last arrays, and these kernels leave theirs by part instead.
  out.num_items = plan.partial_lse;
  out.items = out.num_items + kAlignment;
  out.partial_state = out.items + aligned(items * sizeof(WorkItem));
  out.partial_out = out.partial_state + aligned(part_rows * sizeof(PartialState));
  out.bytes =
      out.partial_out + aligned(part_rows * static_cast<size_t>(choice.kernel.v_head_dim) * sizeof(float));
  out.bytes = std::max(out.bytes, plan.bytes);
  return out;
}

}  // namespace fovea::cuda
