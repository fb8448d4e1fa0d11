#pragma once
// The indexer of sparse latent attention on an NVIDIA GPU: the kernels of kernels/cuda/index.
#include "fovea/result_fwd.h"
#include "ops/ops.h"

namespace fovea {

/// Ops::choose_keys and Ops::index_scratch of `ops`, which normalises the keys.
Status cuda_choose_keys(Ops& ops, const IndexInput& in, const Tensor& chosen, Stream& stream);
int64_t cuda_index_scratch(int64_t heads, int64_t dim, int64_t max_rows, int64_t max_keys);

}  // namespace fovea
