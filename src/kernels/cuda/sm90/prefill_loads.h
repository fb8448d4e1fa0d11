#pragma once
// The load mode of a prefill launch. Host code, without CUDA.
#include "kernels/cuda/common/params.h"

namespace fovea::cuda::sm90 {

/// Keys of one TMA box of a tile of `tile_keys`: a divisor of both the tile and the page. 0: keys are loaded
/// row by row (cp.async), because TMA boxes would be too small to keep up with the tensor cores (the TMA unit
/// needs some 30 ns per copy of any size), because the end of a ragged tensor is not known, or because a
/// tensor map cannot express the strides: those of expanded views are 0.
int tma_box_keys(const KvParams& kv, int tile_keys, int heads);

/// Whether the queries of a tile can be loaded by one TMA box {64 dims, G heads, rows / G tokens} per panel;
/// otherwise they are loaded by cp.async.
bool can_load_query_by_tma(const AttentionParams& p, int rows);

}  // namespace fovea::cuda::sm90
