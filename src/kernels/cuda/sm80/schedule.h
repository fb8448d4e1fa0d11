#pragma once
// The work items of a step, from the planner's tiles: once a step, on the device, without a host read.
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/sm80/select.h"
#include "kernels/reference/visibility.h"

struct CUstream_st;

namespace fovea::cuda::sm80 {

/// Where the pages of sequence b begin in KvParams::pages: first[b], or b * stride when first is null. Ragged
/// keys have their first rows in `first`.
struct PageSource {
  const int32_t* first = nullptr;
  int64_t stride = 0;
};

/// Upper bounds for a layout, and what they take.
struct ScheduleLimits {
  int64_t max_items = 0;
  int64_t max_parts = 0;  ///< of rows whose keys are split
};
ScheduleLimits schedule_limits(const PlanPolicy& policy, const PlanLayout& layout);

/// The planner's policy for a kernel: tiles of its rows, blocks of its keys, chunks of its splits.
PlanPolicy plan_policy(const KernelInfo& kernel, int num_kv_heads, int group, int max_split_tokens,
                       const MaskSpec& mask);

/// Chunk `chunk` of a tile; `part_first` is the tile's first part.
FOVEA_HOST_DEVICE inline WorkItem make_item(const PlanPolicy& policy, const PlanInput& in,
                                            const PageSource& pages, const PlanTile& tile, int chunk,
                                            int32_t part_first) {
  SequenceMask mask;
  mask.n_q = tile.n_q;
  mask.n_k = tile.n_k;
  if (policy.mask.spans)
    mask.spans = {in.spans + in.span_offsets[tile.seq],
                  static_cast<size_t>(in.span_offsets[tile.seq + 1] - in.span_offsets[tile.seq])};
  const KeyRanges keys =
      key_ranges(policy.mask, mask, tile.row / policy.group, (tile.row + tile.rows - 1) / policy.group + 1);
  const ChunkBlocks blocks = chunk_blocks(policy, tile, chunk);
  const bool sinks = blocks.sink_block < blocks.sink_block_end, body = blocks.block < blocks.block_end;
  const int32_t first = sinks ? blocks.sink_block : body ? blocks.block : 0;
  const int32_t last = body ? blocks.block_end : sinks ? blocks.sink_block_end : 0;
  const int64_t end = body ? keys.body.last : sinks ? keys.sinks.last : 0;
  WorkItem item{};
  item.seq = tile.seq;
  item.row_first = tile.row;
  item.key_first = first * policy.block_keys;
  item.key_last =
      static_cast<int32_t>(int64_t{last} * policy.block_keys < end ? int64_t{last} * policy.block_keys : end);
  item.pages = pages.first == nullptr ? tile.seq * pages.stride : pages.first[tile.seq];
  item.q_first = tile.q_row;
  item.n_q = tile.n_q;
  item.n_k = tile.n_k;
  item.key_low = static_cast<int32_t>(keys.body.first);
  item.split = chunk;
  item.num_splits = tile.chunks;
  item.partial_first = part_first;
  return item;
}

/// Queues one kernel of one block that writes `items` [max_items] and their number, and zeros to the counters
/// of the step's parts, `arrivals` [max_parts, Hkv], unless that is null. An empty plan (an error of the
/// planner) gives none.
Status launch_schedule(const PlanPolicy& policy, const PlanInput& input, const PlanView& plan,
                       const PageSource& pages, WorkItem* items, int32_t* num_items, CUstream_st* stream,
                       uint32_t* arrivals = nullptr);

}  // namespace fovea::cuda::sm80
