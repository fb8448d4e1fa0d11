#pragma once
// How a step is cut into work tiles and KV splits: limits and bounds, known on the host, and the cut itself,
// which common/schedule.cu makes on the device from the step's arrays. No length is read by the host, nothing
// synchronises, and a captured launch follows the arrays' contents.
//
// Terms. Packed row: query row r / group of a sequence and head kv_head * group + r % group, as everywhere in
// Fovea. Tile: `tile_rows` packed rows of one sequence. Block: `block_keys` keys from an absolute multiple of
// it, which a kernel's mainloop takes per iteration. Split: `split_keys` keys from an absolute multiple of
// it.
//
// A tile's visible blocks are divided into splits. A row's bits may therefore depend on its own sequence
// only: which splits it has follows from its mask and its position, the partial result of a split from the
// split's keys, and partial results are combined in an order that their number determines, whichever CTA
// computed them. The rest of the batch, the page size, the number of CTAs and graph replay change no bit. How
// a prefill was chunked changes none either as long as the kernel's arithmetic in a split is the same for a
// row in any tile and all steps lie on one side of max_split_tokens. Sequences beyond it are never split: a
// kernel may compute them without regard to splits (then crossing that limit shows in the last bits) or
// combine split by split (then it does not). For kernels of the latter kind there are draft_tokens: whether
// sequences of a few rows are split then follows from the room for partial results in the step.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/host_device.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/result_fwd.h"

namespace fovea::cuda {

/// What is constant for a kernel and a layer's spec.
struct PlanPolicy {
  int num_kv_heads = 1;
  int group = 1;       ///< query heads of a KV head
  int tile_rows = 16;  ///< packed rows of a tile
  int block_keys = 64;
  int split_keys = 512;       ///< a multiple of block_keys
  int max_split_tokens = 16;  ///< sequences with more query rows are never split
  /// But those of at most this number are in steps of which draft_partials() fit into the limits' partial
  /// results.
  int draft_tokens = 0;
  MaskSpec mask;
};

/// Errors: a policy that makes no sense, limits that are negative or whose tiles, rows and heads can't be
/// counted in 32 bits.
Status check_plan_limits(const PlanPolicy& policy, const AttentionLimits& limits);

/// The most row tiles of any step within limits that check_plan_limits accepts.
int64_t max_tiles(const PlanPolicy& policy, const AttentionLimits& limits);

/// Bounds on the splits of any step within limits. A sequence of n_k keys has at most ceil(n_k / split_keys)
/// splits, whatever the mask, and only one of more than split_keys keys has partial results.
struct SplitBounds {
  int64_t per_tile = 0;
  /// The sum over all sequences that are split, one tile each: with S of them, each of at least split_keys
  /// + 1 keys, and T keys in all it is at most (T - S) / split_keys + S.
  int64_t per_step = 0;
};
SplitBounds split_bounds(const PlanPolicy& policy, const AttentionLimits& limits);

/// The step's arrays; device memory for the kernel. Sequences with q_offsets[b] == q_offsets[b + 1] are
/// padding.
struct PlanInput {
  const int32_t* q_offsets = nullptr;  ///< [num_seqs + 1]
  const int32_t* kv_lens = nullptr;    ///< [num_seqs]
  const Span* spans = nullptr;         ///< with mask.spans, as in BatchMeta; null: no sequence has any
  const int32_t* span_offsets = nullptr;
  int num_seqs = 0;
  /// Query rows of the step, as the host knows them: all of them become NaN when q_offsets are wrong.
  int num_rows = 0;
  /// [num_seqs] 1 = the sequence has a page id that the cache does not have; null: ids were not checked.
  const uint8_t* bad_pages = nullptr;
};

struct PlanTile {
  int32_t seq = 0;
  int32_t q_row = 0;         ///< q_offsets[seq]
  int32_t n_q = 0, n_k = 0;  ///< of the sequence
  int32_t row = 0, rows = 0;
  /// Blocks to visit, ascending: [0, sink_block_end), then [block, block_end). Keys in them still need
  /// visible().
  int32_t sink_block_end = 0;
  int32_t block = 0, block_end = 0;
  int32_t num_splits = 1;   ///< at least 1, also without blocks; 1 when the sequence is not split
  int32_t sink_splits = 0;  ///< of them, those before the split of `block`
  int32_t is_split = 0;     ///< 1: splits are cut at split_keys; 0: the one split is everything

  bool operator==(const PlanTile&) const = default;
};

enum class PlanError : int32_t {
  none,
  q_offsets,      ///< does not begin with 0, or decreases
  too_many_rows,  ///< beyond max_tokens
  kv_len,         ///< below 0 or beyond max_kv_len
  kv_tokens,      ///< their sum beyond max_kv_tokens
  pages,          ///< an id that the cache does not have
};

struct HostPlan {
  PlanError error = PlanError::none;  ///< of all sequences the largest; with one there are no tiles
  std::vector<PlanTile> tiles;  ///< in the order of the sequences, of each from its last rows to its first
};

/// Where partial results of a step go, as ScheduleLimits has it: `most` of them for a KV head, of `rows` rows
/// each. A tile of more rows has several for each of its splits.
struct PartialRoom {
  int64_t most = 0;
  int rows = 1;
  FOVEA_HOST_DEVICE int of_tile(int tile_rows) const {
    return tile_rows <= rows
               ? 1
               : static_cast<int>(static_cast<uint32_t>(tile_rows + rows - 1) / static_cast<uint32_t>(rows));
  }
};

/// The plan on the host, from arrays in host memory: the reference that tests compare launch_schedule with.
/// input.num_seqs is at most limits.max_seqs.
HostPlan make_plan_on_host(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input,
                           const PartialRoom& room = {});

/// Checks what the host sees of a step: no more sequences than the limits, and arrays where they are needed.
Status check_plan_input(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input);

/// What a PlanError of a step means, with the limits.
Error plan_error(PlanError error, const AttentionLimits& limits);

/// Blocks of one split: [sink_block, sink_block_end), then [block, block_end).
struct SplitBlocks {
  int32_t sink_block = 0, sink_block_end = 0;
  int32_t block = 0, block_end = 0;
};

/// Split k of [0, tile.num_splits) of a PlanTile, or of another struct with these fields. `each` = blocks of
/// a split, `first` = tile.block / each.
template <class Tile>
FOVEA_HOST_DEVICE inline SplitBlocks split_blocks(const Tile& tile, int32_t k, int32_t each, int32_t first) {
  SplitBlocks out{0, tile.sink_block_end, tile.block, tile.block_end};
  if (tile.is_split == 0) return out;
  const int32_t split = k < tile.sink_splits ? k : first + k - tile.sink_splits;
  const int32_t begin = split * each, end = begin + each;
  const auto clamp = [=](int32_t x) { return x < begin ? begin : x > end ? end : x; };
  return {clamp(out.sink_block), clamp(out.sink_block_end), clamp(out.block), clamp(out.block_end)};
}
FOVEA_HOST_DEVICE inline SplitBlocks split_blocks(const PlanPolicy& policy, const PlanTile& tile, int32_t k) {
  const int32_t each = policy.split_keys / policy.block_keys;
  return split_blocks(tile, k, each, tile.block / each);
}

}  // namespace fovea::cuda
