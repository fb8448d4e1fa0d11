#pragma once
// How a step is cut, for the host's planner and for the kernel in common/schedule.cu: which keys a tile sees,
// and its blocks and splits.
#include "kernels/cuda/plan/plan.h"
#include "kernels/reference/visibility.h"

namespace fovea::cuda {

/// The quotient of two numbers >= 0 whose sum is below 2^31, by an unsigned division in 32 bits.
FOVEA_HOST_DEVICE inline int32_t quotient(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b));
}

/// The last i in [0, n) with before[i] <= x; before[0] = 0 and x is below before[n].
template <class T>
FOVEA_HOST_DEVICE int32_t find_interval(const T* before, int32_t n, int64_t x) {
  int32_t low = 0, high = n;
  FOVEA_ROLLED
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (before[middle] <= x)
      low = middle;
    else
      high = middle;
  }
  return low;
}

/// What is wrong with sequence b of a step. `keys` becomes its number of keys; 0 for padding or with an
/// error.
FOVEA_HOST_DEVICE inline PlanError sequence_error(const AttentionLimits& limits, const PlanInput& in,
                                                  int32_t b, int32_t& keys) {
  const int32_t begin = in.q_offsets[b], end = in.q_offsets[b + 1], n_k = in.kv_lens[b];
  keys = 0;
  if (begin > end || begin < 0 || (b == 0 && begin != 0)) return PlanError::q_offsets;
  if (end > limits.max_tokens) return PlanError::too_many_rows;
  if (begin == end) return PlanError::none;  // padding: its length may be anything
  if (n_k < 0 || n_k > limits.max_kv_len) return PlanError::kv_len;
  if (in.bad_pages != nullptr && in.bad_pages[b] != 0) return PlanError::pages;
  keys = n_k;
  return PlanError::none;
}

/// The quotients of numbers >= 0 that cut a step. common/schedule.cu has a faster version with reciprocals.
struct PlanDivide {
  const PlanPolicy& policy;
  int32_t blocks_per_split;
  FOVEA_HOST_DEVICE int32_t by_group(int32_t rows) const { return quotient(rows, policy.group); }
  FOVEA_HOST_DEVICE int32_t by_block(int32_t keys) const { return quotient(keys, policy.block_keys); }
  FOVEA_HOST_DEVICE int32_t by_split(int32_t blocks) const { return quotient(blocks, blocks_per_split); }
  FOVEA_HOST_DEVICE int32_t by_tile(int32_t rows) const { return quotient(rows, policy.tile_rows); }
};

/// At least the partial results for a KV head of a sequence of n_q rows and n_k keys, if it is split.
template <class Divide>
FOVEA_HOST_DEVICE int64_t draft_partials(const PlanPolicy& policy, const Divide& divide,
                                         int32_t blocks_per_split, const PartialRoom& room, int32_t n_q,
                                         int32_t n_k) {
  if (n_q == 0 || n_q > policy.draft_tokens || n_k <= policy.split_keys) return 0;
  const int32_t rows = n_q * policy.group, tiles = divide.by_tile(rows + policy.tile_rows - 1);
  const int32_t blocks = divide.by_block(n_k + policy.block_keys - 1);
  const int32_t splits = divide.by_split(blocks + blocks_per_split - 1);
  return int64_t{tiles} * room.of_tile(rows < policy.tile_rows ? rows : policy.tile_rows) * splits;
}

/// Sequences of at most this number of rows are split in a step whose draft_partials() add up to `partials`.
FOVEA_HOST_DEVICE inline int split_tokens(const PlanPolicy& policy, const PartialRoom& room,
                                          int64_t partials) {
  return policy.draft_tokens > policy.max_split_tokens && partials <= room.most ? policy.draft_tokens
                                                                                : policy.max_split_tokens;
}

/// The keys that rows of a tile see. kPlainMask: the policy's mask has neither spans nor chunks nor sink
/// tokens, whose code is then left out.
template <bool kPlainMask, class Tile, class Divide>
FOVEA_HOST_DEVICE KeyRanges tile_keys(const PlanPolicy& policy, const Divide& divide, const PlanInput& in,
                                      const Tile& tile) {
  SequenceMask mask;
  mask.n_q = tile.n_q;
  mask.n_k = tile.n_k;
  if (!kPlainMask && policy.mask.spans && in.spans != nullptr)
    mask.spans = {in.spans + in.span_offsets[tile.seq],
                  static_cast<size_t>(in.span_offsets[tile.seq + 1] - in.span_offsets[tile.seq])};
  MaskSpec spec = policy.mask;
  if constexpr (kPlainMask) spec.spans = false, spec.chunk = 0, spec.sink_tokens = 0;
  return key_ranges(spec, mask, divide.by_group(tile.row), divide.by_group(tile.row + tile.rows - 1) + 1);
}

/// Fills the blocks that hold `keys`.
template <class Tile, class Divide>
FOVEA_HOST_DEVICE void set_blocks(const PlanPolicy& policy, const Divide& divide, const KeyRanges& keys,
                                  Tile& tile) {
  const int32_t last = policy.block_keys - 1;
  if (!keys.body.empty()) {
    tile.block = divide.by_block(static_cast<int32_t>(keys.body.first));
    tile.block_end = divide.by_block(static_cast<int32_t>(keys.body.last) + last);
    if (mutated(Mutation::last_block_lost) && tile.block_end > tile.block + 1) --tile.block_end;
  }
  if (keys.sinks.empty()) return;
  // Blocks that both reach belong to the body.
  tile.sink_block_end = divide.by_block(static_cast<int32_t>(keys.sinks.last) + last);
  if (!keys.body.empty() && tile.sink_block_end > tile.block) tile.sink_block_end = tile.block;
}

/// Fills the splits of a tile's blocks; `most_rows` is the step's split_tokens().
template <class Tile, class Divide>
FOVEA_HOST_DEVICE void set_splits(int most_rows, const Divide& divide, int32_t blocks_per_split, Tile& tile) {
  if (tile.n_q > most_rows) return;
  const int32_t first = divide.by_split(tile.block), last = blocks_per_split - 1;
  tile.is_split = 1;
  const bool body = tile.block < tile.block_end;
  tile.sink_splits = divide.by_split(tile.sink_block_end + last);
  if (body && tile.sink_splits > first) tile.sink_splits = first;
  tile.num_splits = tile.sink_splits;
  if (body) tile.num_splits += divide.by_split(tile.block_end + last) - first;
  if (tile.num_splits == 0) tile.num_splits = 1;
}

}  // namespace fovea::cuda
