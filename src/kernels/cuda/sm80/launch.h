#pragma once
// Launches the kernels of this family. Nothing here synchronises or allocates, and all of it can be captured.
#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/sm80/select.h"

struct CUstream_st;

namespace fovea::cuda::sm80 {

/// Queues the kernel that `kernel` (of select) names. `params.items` holds *params.num_items items, a number
/// that is known only on the device and is at most `max_items`. Errors: those of the CUDA runtime.
Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record = nullptr);

}  // namespace fovea::cuda::sm80
