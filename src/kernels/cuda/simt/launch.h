#pragma once
// Launches the CUDA-core decode kernels. Nothing here synchronises or allocates, and all of it can be
// captured.
#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/simt/select.h"

struct CUstream_st;

namespace fovea::cuda::simt {

/// Queues the kernel that `kernel` (of select) names and, where keys may be split, the combine kernel, as
/// sm80::launch does: `params.items` holds *params.num_items items, at most `max_items`. Spans, packed and
/// tree masks of `params` are ignored. Alignment: rows of K and V to 16 bytes (8-bit ones whose D or Dv is no
/// multiple of 16: to 8), of O to 8, of Q to 4. Errors: those of the CUDA runtime.
Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record = nullptr);

}  // namespace fovea::cuda::simt
