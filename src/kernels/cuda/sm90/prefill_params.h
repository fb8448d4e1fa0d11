#pragma once
// What a prefill kernel is given beside AttentionParams.
#include <cuda.h>

#include "kernels/cuda/common/params.h"

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

/// A soft cap in units of q.k: limit tanh(x scale / (2 log2 e)) in log2 units. limit 0: there is none.
struct PrefillCap {
  float limit = 0, scale = 0;
  /// Of x up to what these bits stand for: x times the polynomial of x^2 with these terms. Further below 0 it
  /// falls faster than tanh, so that what is small beside the row's other keys stays so.
  int small = 0;
  float terms[3] = {};
  /// ... in a row whose sum is this times the number of its keys, or if one of a lane's scores isn't below 0.
  float enough = 0;
  bool both_sides = false;  ///< of a cap so low that x must lie above the negative of `small` too
  /// Whether bases follow the maximum. Else they stay what the first tile says, but not below `least_base`:
  /// the type has all powers of 2 that capped scores can then be.
  bool moves = true;
  float least_base = 0;
};

struct PrefillParams {
  AttentionParams p;
  PrefillLoads loads;
  float scale = 0;  ///< of q.k to a score in log2 units
  PrefillCap cap;
  /// Heads work at once on keys that fit L2: of as many heads as have no more keys together.
  int section_keys = 0;
  CUtensorMap q, k, v;
};

}  // namespace fovea::cuda::sm90
