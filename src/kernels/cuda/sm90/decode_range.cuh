#pragma once
// Which items a block takes. Blocks of one gang, one for each KV head, take the same items, so that what lies
// together in memory is read together; gangs share the step's items out evenly, in order, so that a row's
// keys are cut between gangs only where one ends and the next begins.
#include "kernels/cuda/common/params.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda::sm90 {

/// Of a launch.
struct DecodeGrid {
  int gangs;
  bool planned, settled;  ///< of AttentionParams
  int max_items;
};

/// `items` items among `gangs` gangs, at most as many.
struct GangDivision {
  uint32_t items, gangs;

  __device__ GangDivision(int num_items, int most_gangs)
      : items(static_cast<uint32_t>(num_items)), gangs(static_cast<uint32_t>(min(num_items, most_gangs))) {}
  /// First item of a gang. A launch bounds items * gangs by 2^31.
  __device__ int first(int gang) const {
    return gangs == 0 ? 0 : static_cast<int>(items * static_cast<uint32_t>(gang) / gangs);
  }
  __device__ int gang_of(int item) const {
    return static_cast<int>(((static_cast<uint32_t>(item) + 1) * gangs - 1) / items);
  }
};

/// The items [first, last) of this block, under one head.
struct DecodeRange {
  GangDivision division;
  int head, first, last;

  __device__ DecodeRange(const AttentionParams& p, int num_items, int most_gangs)
      : division(num_items, most_gangs) {
    const int gang = p.kv_heads.quotient(static_cast<int>(blockIdx.x));
    head = static_cast<int>(blockIdx.x) - gang * static_cast<int>(p.kv_heads.divisor);
    const bool some = gang < static_cast<int>(division.gangs);
    first = some ? division.first(gang) : 0;
    last = some ? division.first(gang + 1) : 0;
  }
};

/// Consecutive items of one row tile within a range: a row's keys, or a part of them.
template <class P>
struct DecodePiece {
  WorkItem item;    ///< the current one
  int index, end;   ///< of the current item; past the last
  int tile_item;    ///< of split 0
  int first_chunk;  ///< number of split 0's chunk
  int rows;

  __device__ DecodePiece(const AttentionParams& p, const DecodeRange& range, int first)
      : item(p.items[first]), index(first) {
    tile_item = index - item.split;
    end = min(range.last, tile_item + item.num_splits);
    first_chunk = item.key_first / P::kChunkKeys - item.split;
    rows = min(P::kRows, item.n_q * static_cast<int>(p.group.divisor) - item.row_first);
  }
  /// Moves to the next item; false: there is none.
  __device__ bool next(const AttentionParams& p) {
    if (++index >= end) return false;
    item = p.items[index];
    return true;
  }
  /// The first key of the item's first tile that some row sees; >= key_last: none.
  static __device__ int first_key(const WorkItem& item) {
    return max(item.key_first, item.key_low / P::kTileKeys * P::kTileKeys);
  }
  __device__ int first_key() const { return first_key(item); }
};

}  // namespace fovea::cuda::sm90
