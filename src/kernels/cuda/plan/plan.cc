#include "kernels/cuda/plan/plan.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"
#include "kernels/cuda/plan/plan-inl.h"

namespace fovea::cuda {
namespace {

constexpr size_t kAlignment = 256;

// Pairs, rows and units are counted in 32 bits.
constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// Products of two CTA numbers, and sums of a pair's cost and its blocks, are taken in 32 bits.
constexpr int kMaxCtas = 1 << 15, kMaxPairCost = 1 << 20;

/// One thread.
struct HostBlock {
  static constexpr int32_t kScratchSeqs = 0, kScratchTiles = 0, kScratchStarts = 0;
  static int32_t* scratch_seqs() { return nullptr; }
  static int64_t* scratch_tiles() { return nullptr; }
  static PlanStart* scratch_starts() { return nullptr; }
  static int rank() { return 0; }
  static int size() { return 1; }
  static void sync() {}
  static int max(int x) { return x; }
  static PlanSums exclusive_scan(const PlanSums& x, PlanSums& total) {
    total = x;
    return {};
  }
};

std::string str(int64_t x) {
  return std::to_string(x);
}

Status check_policy(const PlanPolicy& p) {
  if (p.num_kv_heads < 1 || p.group < 1 || p.tile_rows < 1 || p.ctas < 1 || p.pair_cost < 1 ||
      p.max_split_tokens < 0)
    return invalid(
        "attention plan: kv heads, group, tile rows, CTAs and the cost of a pair must be at least 1, split "
        "tokens 0; " +
        str(p.num_kv_heads) + ", " + str(p.group) + ", " + str(p.tile_rows) + ", " + str(p.ctas) + ", " +
        str(p.pair_cost) + " and " + str(p.max_split_tokens) + " are given");
  if (p.ctas > kMaxCtas || p.pair_cost > kMaxPairCost)
    return invalid("attention plan: " + str(p.ctas) + " CTAs and a cost of " + str(p.pair_cost) +
                   " for a pair are given; at most " + str(kMaxCtas) + " and " + str(kMaxPairCost) +
                   " are allowed");
  if (p.block_keys < 1 || p.split_keys < 1 || p.split_keys % p.block_keys != 0)
    return invalid("attention plan: split_keys " + str(p.split_keys) +
                   " must be a positive multiple of block_keys " + str(p.block_keys));
  return {};
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// a * b, or the largest 64-bit number; of numbers from 0 on.
int64_t saturated_product(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::numeric_limits<int64_t>::max() : out;
}

/// Most keys from the first to the last that a row tile of a split sequence sees, sink tokens apart.
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

/// The most partial results of any step: rows of a split sequence are at most max_split_tokens tokens, and
/// all rows at most max_tokens.
int64_t max_records(const PlanPolicy& p, const AttentionLimits& limits) {
  const ChunkBounds chunks = chunk_bounds(p, limits);
  const int64_t of_token = int64_t{p.num_kv_heads} * p.group;
  const int64_t tokens = std::min(p.max_split_tokens, limits.max_tokens);
  return std::min(saturated_product(chunks.of_step, of_token * tokens),
                  saturated_product(chunks.of_sequence, of_token * limits.max_tokens));
}

std::string describe(const AttentionLimits& limits) {
  return "attention plan for " + str(limits.max_seqs) + " sequences, " + str(limits.max_tokens) +
         " query rows, " + str(limits.max_kv_tokens) + " keys, longest " + str(limits.max_kv_len);
}

/// Appends arrays to a layout; remembers whether a size did not fit.
class Arena {
 public:
  size_t add(int64_t count, int64_t size) {
    const int64_t begin = at_;
    int64_t bytes = 0;
    overflow_ = overflow_ || __builtin_mul_overflow(count, size, &bytes) ||
                __builtin_add_overflow(at_, bytes + static_cast<int64_t>(kAlignment) - 1, &at_);
    if (!overflow_) at_ = at_ / static_cast<int64_t>(kAlignment) * static_cast<int64_t>(kAlignment);
    return static_cast<size_t>(begin);
  }
  bool overflow() const { return overflow_; }
  size_t bytes() const { return static_cast<size_t>(at_); }

 private:
  int64_t at_ = 0;
  bool overflow_ = false;
};

}  // namespace

int split_keys_for(int rows, int dv, int64_t key_bytes) {
  constexpr int kLeast = 256, kMost = 4096;
  // A result of a row is written once and read once: 2 * 4 * (dv + 1) bytes; 2 % = 1 / 50.
  const int64_t keys = ceil_div(int64_t{50} * 8 * (dv + 1) * rows, key_bytes);
  int split = kLeast;
  while (split < kMost && split < keys)
    split *= 2;
  return split;
}

int64_t most_tiles(const PlanPolicy& policy, const AttentionLimits& limits) {
  // ceil(a / t) is at most floor(a / t) + 1 for each sequence that has rows.
  return int64_t{limits.max_tokens} * policy.group / policy.tile_rows +
         std::min(limits.max_seqs, limits.max_tokens);
}

ChunkBounds chunk_bounds(const PlanPolicy& p, const AttentionLimits& limits) {
  const int64_t c = p.split_keys;
  if (limits.max_kv_len <= c) return {};
  ChunkBounds out;
  out.of_sequence = ceil_div(limits.max_kv_len, c);
  const int64_t span = longest_span(p, limits);
  if (span < limits.max_kv_len)  // anywhere between borders, and the sink tokens' own
    out.of_sequence = std::min(
        out.of_sequence, ceil_div(std::max<int64_t>(span - 1, 0), c) + 1 + ceil_div(p.mask.sink_tokens, c));
  const int64_t seqs = std::min(limits.max_seqs, limits.max_tokens);
  const int64_t keys = std::min(limits.max_kv_tokens, seqs * limits.max_kv_len);
  const int64_t split = std::min(seqs, keys / (c + 1));
  out.of_step = std::min((keys - split) / c + split, seqs * out.of_sequence);
  if (split == 0) out.of_step = 0;
  return out;
}

int split_tokens_for(const PlanPolicy& policy, const AttentionLimits& limits, int dv, int64_t bytes) {
  PlanPolicy p = policy;
  for (p.max_split_tokens = 16; p.max_split_tokens > 1; p.max_split_tokens /= 2)
    if (saturated_product(max_records(p, limits), int64_t{4} * (dv + 2)) <= bytes) break;
  return p.max_split_tokens;
}

Status check_plan_limits(const PlanPolicy& policy, const AttentionLimits& limits) {
  FOVEA_RETURN_IF_ERROR(check_policy(policy));
  if (limits.max_seqs < 0 || limits.max_tokens < 0 || limits.max_kv_tokens < 0 || limits.max_kv_len < 0)
    return invalid("attention plan: limits must not be negative");
  const int64_t packed = int64_t{limits.max_tokens} * policy.group;
  if (packed > kMaxCount - policy.tile_rows || packed * policy.num_kv_heads > kMaxCount ||
      most_tiles(policy, limits) * policy.num_kv_heads >= kMaxCount ||
      int64_t{limits.max_kv_len} + policy.split_keys > kMaxCount)
    return invalid(describe(limits) +
                   ": rows times heads and the longest sequence must be below 2^31; lower the limits");
  return {};
}

Result<PlanLayout> plan_layout(const PlanPolicy& policy, const AttentionLimits& limits, int dv) {
  FOVEA_RETURN_IF_ERROR(check_plan_limits(policy, limits));
  if (dv < 1) return invalid("attention plan: Dv is " + str(dv) + "; at least 1");
  const int64_t tiles = most_tiles(policy, limits);
  PlanLayout out;
  out.limits = limits;
  out.dv = dv;
  out.max_tiles = static_cast<int32_t>(tiles);
  out.max_merges = policy.folds ? policy.ctas : out.max_tiles;
  out.max_records = max_records(policy, limits);
  Arena arena;
  out.header = arena.add(1, sizeof(PlanHeader));
  out.tiles = arena.add(tiles, sizeof(PlanTile));
  out.starts = arena.add(int64_t{policy.ctas} + 1, sizeof(PlanStart));
  out.merges = arena.add(out.max_merges, sizeof(PlanMerge));
  out.tile_of_seq = arena.add(int64_t{limits.max_seqs} + 1, sizeof(int32_t));
  out.cost_before = arena.add(tiles + 1, sizeof(int64_t));
  out.partial_lse = arena.add(out.max_records, sizeof(float));
  out.partial_o = arena.add(out.max_records, dv * static_cast<int64_t>(sizeof(float)));
  out.bytes = arena.bytes();
  if (arena.overflow())
    return invalid(describe(limits) +
                   ": its partial results need more bytes than 64 bits count; lower the limits");
  return out;
}

PlanView plan_view(const PlanLayout& layout, void* workspace) {
  auto* base = static_cast<std::byte*>(workspace);
  PlanView view;
  view.header = reinterpret_cast<PlanHeader*>(base + layout.header);
  view.tiles = reinterpret_cast<PlanTile*>(base + layout.tiles);
  view.starts = reinterpret_cast<PlanStart*>(base + layout.starts);
  view.merges = reinterpret_cast<PlanMerge*>(base + layout.merges);
  view.tile_of_seq = reinterpret_cast<int32_t*>(base + layout.tile_of_seq);
  view.cost_before = reinterpret_cast<int64_t*>(base + layout.cost_before);
  view.partial_lse = reinterpret_cast<float*>(base + layout.partial_lse);
  view.partial_o = reinterpret_cast<float*>(base + layout.partial_o);
  return view;
}

void make_plan_on_host(const PlanPolicy& policy, const PlanLayout& layout, const PlanInput& input,
                       const PlanView& out) {
  FOVEA_CHECK(input.num_seqs >= 0 && input.num_seqs <= layout.limits.max_seqs);
  HostBlock block;
  Planner<HostBlock, false>(block, policy, layout, input, out).run();
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
    case PlanError::records: break;
  }
  return {ErrorCode::internal, "attention plan: error " + str(static_cast<int>(error))};
}

}  // namespace fovea::cuda
