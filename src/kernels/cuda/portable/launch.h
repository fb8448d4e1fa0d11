#pragma once
// Launches the kernels of this family. Nothing here synchronises or allocates, and all of it can be captured.
#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/portable/select.h"

struct CUstream_st;

namespace fovea::cuda::portable {

/// Queues the kernel that `kernel` (of select) names and, where `params.partial_out` is given, the combine
/// kernel. `params.items` holds *params.num_items items, a number that is known only on the device and is at
/// most `max_items`. Errors: a type of keys other than the kernel's; those of the CUDA runtime.
Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record = nullptr);

}  // namespace fovea::cuda::portable
