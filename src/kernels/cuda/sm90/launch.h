#pragma once
// Launches the kernels of this family. Nothing here synchronises or allocates, and all of it can be captured.
#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/sm90/select.h"

struct CUstream_st;

namespace fovea::cuda::sm90 {

/// Queues the kernel that `kernel` (of select) names, and where keys may be split what merges, as
/// sm80::launch does: `params.items` holds *params.num_items items, at most `max_items`. Alignment: all rows
/// to 16 bytes. Errors: x-packed pages; a device that is not of compute capability 9.0; what the CUDA
/// runtime says.
Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record = nullptr);

}  // namespace fovea::cuda::sm90
