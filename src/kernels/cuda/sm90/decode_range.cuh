#pragma once
// Which items a block takes. Blocks of one gang, one for each KV head, take the same items, so that what lies
// together in memory is read together; gangs share the step's items out evenly, in order, so that a row's
// keys are cut between gangs only where one ends and the next begins.
#include "kernels/cuda/sm80/params.h"
#include "kernels/cuda/tiles/common.cuh"

namespace fovea::cuda::sm90 {

/// `items` items among `gangs` gangs, at most as many.
struct GangDivision {
  uint32_t items, gangs;

  __device__ GangDivision(int num_items, int most_gangs)
      : items(static_cast<uint32_t>(num_items)),
        gangs(static_cast<uint32_t>(min(num_items, most_gangs))) {}
  /// First item of a gang. The launch bounds items * gangs by 2^31.
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

/// The first key of the first tile of an item that some row sees; >= key_last: none.
template <class P>
__device__ __forceinline__ int first_tile(const WorkItem& item) {
  return max(item.key_first, item.key_low / P::kTileKeys * P::kTileKeys);
}

}  // namespace fovea::cuda::sm90
