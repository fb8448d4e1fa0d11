#pragma once
// The work items of a CTA. A CTA group has one CTA for each KV head. The CTAs of a group take the same items,
// so that what lies together in memory is read together. The groups divide the step's items evenly and in
// order, so that the keys of a row are divided between CTAs only where one group's range ends and the next
// begins.
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda::sm90 {

/// Parameters of a launch beside AttentionParams.
struct DecodeGrid {
  int cta_groups;
  bool planned, past_kv_ready;  ///< AttentionParams::planned; with it, past_kv_ready
  int max_items;
};

/// Divides `items` items between `cta_groups` groups, of which there are at most as many as items.
struct CtaGroupDivision {
  uint32_t items, cta_groups;

  __device__ CtaGroupDivision(int num_items, int max_cta_groups)
      : items(static_cast<uint32_t>(num_items)),
        cta_groups(static_cast<uint32_t>(min(num_items, max_cta_groups))) {}
  /// First item of a group. The launch keeps items * cta_groups below 2^31.
  __device__ int first(int cta_group) const {
    return cta_groups == 0 ? 0 : static_cast<int>(items * static_cast<uint32_t>(cta_group) / cta_groups);
  }
  __device__ int cta_group_of(int item) const {
    return static_cast<int>(((static_cast<uint32_t>(item) + 1) * cta_groups - 1) / items);
  }
};

/// The items [first, last) of this CTA, under one KV head.
struct DecodeRange {
  CtaGroupDivision division;
  int head, first, last;

  __device__ DecodeRange(const AttentionParams& p, int num_items, int max_cta_groups)
      : division(num_items, max_cta_groups) {
    const int cta_group = p.kv_heads.quotient(static_cast<int>(blockIdx.x));
    head = static_cast<int>(blockIdx.x) - cta_group * static_cast<int>(p.kv_heads.divisor);
    const bool has_items = cta_group < static_cast<int>(division.cta_groups);
    first = has_items ? division.first(cta_group) : 0;
    last = has_items ? division.first(cta_group + 1) : 0;
  }
};

/// The consecutive items of one row tile within a range: all splits of the tile, or some of them.
template <class P>
struct DecodeRowTile {
  WorkItem item;  ///< the current one
  int index;      ///< of the current item
  int rows;

  __device__ DecodeRowTile(const AttentionParams& p, int first) : item(p.items[first]), index(first) {
    rows = min(P::kRows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
  }
  /// Index of the item of split 0, and number of its chunk.
  __device__ int tile_item() const { return index - item.split; }
  __device__ int first_chunk() const { return item.key_first / P::kChunkKeys - item.split; }
  /// End of the row tile's items in the range.
  __device__ int end(const DecodeRange& range) const {
    return min(range.last, tile_item() + item.num_splits);
  }
  __device__ void next(const AttentionParams& p) { item = p.items[++index]; }
  /// The first key of the item's first key tile that some row sees; >= key_last: there is none.
  static __device__ int first_key(const WorkItem& item) {
    return max(item.key_first, item.key_low / P::kTileKeys * P::kTileKeys);
  }
  __device__ int first_key() const { return first_key(item); }
};

}  // namespace fovea::cuda::sm90
