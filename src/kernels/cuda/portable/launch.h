#pragma once
// Launches the kernels of this family. Nothing here synchronises or allocates, and all of it can be captured.
#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/portable/select.h"

struct CUstream_st;

namespace fovea::cuda::portable {

/// Queues the kernel that `kernel` (of select) names, and the merge of split keys where `params.partial_out`
/// is given. `params.items` holds *params.num_items items, a number that only the device knows and that is at
/// most `max_items`. Errors: another type of keys than the kernel's; what the CUDA runtime says.
Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record = nullptr);

}  // namespace fovea::cuda::portable
