#pragma once
// Launches of what choose_kernel() chose.
#include "backends/cuda/kernel_choice.h"
#include "kernels/cuda/common/launch_record.h"

struct CUstream_st;

namespace fovea::cuda {

/// Queues the kernel, and the one that merges where keys were split (params.partial_out). `max_items` bounds
/// *params.num_items. Error: what the CUDA runtime says. `record` is set where all is queued.
Status launch(const KernelChoice& choice, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord& record);

}  // namespace fovea::cuda
