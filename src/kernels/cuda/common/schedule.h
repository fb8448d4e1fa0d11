#pragma once
// The work items of a step: made once a step, on the device, without a host read.
#include "kernels/cuda/common/kernel_info.h"
#include "kernels/cuda/plan/plan-inl.h"
#include "kernels/reference/visibility.h"

struct CUstream_st;

namespace fovea::cuda {

/// Where the pages of sequence b begin in KvParams::pages: first[b], or b * stride when first is null. For
/// ragged keys `first` holds the first row of each sequence.
struct PageSource {
  const int32_t* first = nullptr;
  int64_t stride = 0;
};

/// Upper bounds of any step within limits.
struct ScheduleLimits {
  int64_t max_items = 0;
  int64_t max_partials = 0;  ///< partial results per KV head: the splits of all row tiles with more than one
  /// Rows of a partial result: AttentionParams::partial_rows. Sequences that are split may have fewer packed
  /// rows than a tile.
  int partial_rows = 0;

  PartialRoom room() const { return {max_partials, partial_rows}; }
};
ScheduleLimits schedule_limits(const PlanPolicy& policy, const AttentionLimits& limits);

/// The planner's policy for a kernel: its tile rows, keys per block and keys per split.
PlanPolicy plan_policy(const KernelInfo& kernel, int num_kv_heads, int group, int max_split_tokens,
                       const MaskSpec& mask, int draft_tokens = 0);

/// A row tile that work items are made from: PlanTile's fields, and the keys that its rows see.
struct ItemTile {
  int32_t seq = 0, q_row = 0, n_q = 0, n_k = 0;
  int32_t row = 0, rows = 0;
  int32_t sink_block_end = 0, block = 0, block_end = 0;
  int32_t num_splits = 1, sink_splits = 0, is_split = 0;
  int32_t key_low = 0, sink_first = 0, body_last = 0;
  int32_t first_page = 0;   ///< PageSource::first[seq]
  int32_t first_split = 0;  ///< block / blocks of a split

  FOVEA_HOST_DEVICE void set_keys(const KeyRanges& keys) {
    key_low = static_cast<int32_t>(keys.body.first);
    sink_first = keys.sinks.empty() ? INT32_MAX : static_cast<int32_t>(keys.sinks.first);
    body_last = static_cast<int32_t>(keys.body.last);
  }
};

/// The item of split `split` of a tile; `partial_first` is the tile's first partial result.
FOVEA_HOST_DEVICE inline WorkItem item_of(const PlanPolicy& policy, int blocks_per_split,
                                          const PageSource& pages, const ItemTile& tile, int split,
                                          int32_t partial_first) {
  const SplitBlocks blocks = split_blocks(tile, split, blocks_per_split, tile.first_split);
  const bool sinks = blocks.sink_block < blocks.sink_block_end, body = blocks.block < blocks.block_end;
  const int32_t first = sinks ? blocks.sink_block : body ? blocks.block : 0;
  const int32_t last = body ? blocks.block_end : sinks ? blocks.sink_block_end : 0;
  // A tile that has sink tokens has a body, from key_low on.
  const int32_t end = body ? tile.body_last : sinks ? tile.key_low : 0;
  const int64_t past = int64_t{last} * policy.block_keys;
  WorkItem item{};
  item.seq = tile.seq;
  item.row_first = tile.row;
  item.key_first = first * policy.block_keys;
  item.key_last = past < end ? static_cast<int32_t>(past) : end;
  item.pages = pages.first == nullptr ? tile.seq * pages.stride : tile.first_page;
  item.q_first = tile.q_row;
  item.n_q = tile.n_q;
  item.n_k = tile.n_k;
  item.key_low = tile.key_low;
  item.split = split;
  item.num_splits = tile.num_splits;
  item.partial_first = partial_first;
  item.sink_first = tile.sink_first;
  return item;
}

/// The same from a PlanTile.
FOVEA_HOST_DEVICE inline WorkItem make_item(const PlanPolicy& policy, const PlanInput& in,
                                            const PageSource& pages, const PlanTile& from, int split,
                                            int32_t partial_first) {
  ItemTile tile{from.seq,         from.q_row,          from.n_q,   from.n_k,       from.row,
                from.rows,        from.sink_block_end, from.block, from.block_end, from.num_splits,
                from.sink_splits, from.is_split};
  const PlanDivide divide{policy, policy.split_keys / policy.block_keys};
  tile.set_keys(tile_keys<false>(policy, divide, in, from));
  tile.first_split = divide.by_split(tile.block);
  if (pages.first != nullptr) tile.first_page = pages.first[tile.seq];
  return item_of(policy, divide.blocks_per_split, pages, tile, split, partial_first);
}

/// Where a step's schedule goes; device memory.
struct ScheduleView {
  WorkItem* items = nullptr;  ///< [max_items], 16-byte aligned
  int32_t* num_items = nullptr;
  PlanError* error = nullptr;    ///< of the step's arrays (plan_error describes it); or null
  uint32_t* arrivals = nullptr;  ///< AttentionParams::arrivals, set to 0 for the step's partials; or null
  int32_t* queue = nullptr;      ///< AttentionParams::queue, set to 0; or null
};

/// Makes a step's items from its arrays, in one kernel that can be captured: those that make_item returns
/// for the tiles of make_plan_on_host, in their order. A sequence whose length or page ids are wrong has
/// items without keys (kLostKeys), whose rows kernels set to NaN; with wrong q_offsets, or more keys in all
/// than the limits, all input.num_rows rows are those of one such sequence. ScheduleView::error then holds
/// what was wrong. Errors, before anything is queued: those of check_plan_limits; more sequences than the
/// limits; arrays missing.
Status launch_schedule(const PlanPolicy& policy, const AttentionLimits& limits, const PlanInput& input,
                       const PageSource& pages, const ScheduleView& out, CUstream_st* stream);

}  // namespace fovea::cuda
