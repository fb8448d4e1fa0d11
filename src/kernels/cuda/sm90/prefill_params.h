#pragma once
// What a prefill kernel is given beside AttentionParams.
#include <cuda.h>

#include "kernels/cuda/sm80/params.h"

namespace fovea::cuda::sm90 {

/// How a tile comes into shared memory; constant for a launch, and no bit of a result depends on it.
struct PrefillLoads {
  /// Queries by one box {64 dims, G heads, rows / G tokens} a panel; else by cp.async.
  bool query_boxes = false;
  /// Keys and values by boxes {64 dims, box_keys keys}; else by cp.async, row by row.
  bool key_boxes = false;
  int box_keys = 0;  ///< divides the keys of a tile, and the page size
  /// Warps that load: one issues a tile's few large boxes; of small ones it could not issue enough.
  int warps = 4;
};

struct PrefillParams {
  AttentionParams p;
  PrefillLoads loads;
  /// A score in log2 units is scale * q.k; with a soft cap, where cap_scale is not 0, it is
  /// offset - scale / (2^(cap_scale * q.k) + 1).
  float scale = 0, cap_scale = 0, offset = 0;
  /// Heads work at once on keys that fit L2: of as many heads as have no more keys together.
  int section_keys = 0;
  CUtensorMap q, k, v;
};

}  // namespace fovea::cuda::sm90
