#pragma once
// Parameters of a prefill kernel beside AttentionParams.
#include <cuda.h>

#include "kernels/cuda/common/params.h"

namespace fovea::cuda::sm90 {

/// How Q, K and V reach shared memory; constant for a launch. No bit of a result depends on it.
struct PrefillLoads {
  /// Q by one TMA box {64 dims, G heads, rows / G tokens} per panel and part; else by cp.async.
  bool query_by_tma = false;
  /// Parts of a work tile's queries that have barriers of their own: the rows of each consumer, or all.
  int query_parts = 1;
  /// The producer warp that loads queries. If it isn't one of those that load keys, a consumer need not wait
  /// for the others' last scores of a work tile.
  int query_warp = 0;
  /// K and V by TMA boxes {64 dims, tma_box_keys keys}; else by cp.async, row by row.
  bool kv_by_tma = false;
  int tma_box_keys = 0;  ///< divides the keys of a tile and the page size
  /// Producer warps that load: one can issue a tile's few large TMA boxes, but not enough small ones.
  int warps = 4;
};

/// A soft cap in units of q.k: a capped score is limit * tanh(x * scale / (2 log2 e)) in log2 units. limit 0:
/// no soft cap.
struct PrefillSoftcap {
  float limit = 0, scale = 0;
  /// The bits of the largest x that is small: its capped score is x times a polynomial of x^2 with these
  /// coefficients. For x far below 0 the polynomial falls faster than tanh, so scores that are negligible
  /// beside the other keys of the row stay negligible.
  int small = 0;
  float polynomial[3] = {};
  /// Negative x of any size may use the polynomial if one of the lane's scores is not below 0, or if the row
  /// has a row_max of at least 0 and a sum of at least this times the number of its keys.
  float min_mean_weight = 0;
  bool two_sided = false;  ///< the cap is so low that x must also lie above the negative of `small`
  /// Whether row_max follows the maximum. Otherwise it stays that of the first tile, but at least
  /// min_row_max: the type then represents every power of 2 that capped scores can give.
  bool updates_row_max = true;
  float min_row_max = 0;
};

struct PrefillParams {
  AttentionParams p;
  PrefillLoads loads;
  float scale = 0;  ///< from q.k to a score in log2 units
  PrefillSoftcap softcap;
  /// KV heads are processed in sections whose keys fit in L2: as many heads as have at most this many keys
  /// together.
  int section_keys = 0;
  CUtensorMap q, k, v;
};

}  // namespace fovea::cuda::sm90
