#pragma once
// How a launch of a prefill kernel loads its keys and queries. Host code, without CUDA.
#include "kernels/cuda/common/params.h"

namespace fovea::cuda::sm90 {

/// Rows of one TMA box of keys, of a tile of `tile_keys`: a divisor of both the tile and the page. 0: keys
/// are loaded row by row (cp.async), because boxes would be too small to keep up with the tensor cores (a
/// copy takes the TMA unit some 30 ns whatever it moves), because the end of a ragged tensor is not known, or
/// because a tensor map cannot express the strides: those of expanded views are 0.
int box_keys_of(const KvParams& kv, int tile_keys, int heads);

/// Whether a tile's queries may be one TMA box {64 dims, G heads, rows / G tokens} a panel; else cp.async.
bool query_boxes(const AttentionParams& p, int rows);

}  // namespace fovea::cuda::sm90
