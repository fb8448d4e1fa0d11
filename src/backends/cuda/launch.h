#pragma once
// Launches the kernels chosen by choose_kernel().
#include "backends/cuda/kernel_choice.h"
#include "kernels/cuda/common/launch_record.h"

struct CUstream_st;

namespace fovea::cuda::sm90 {
struct WidenSpace;
}

namespace fovea::cuda {

/// Queues the kernel, and the merge kernel where keys were split (params.partial_out). `max_items` bounds
/// *params.num_items. Errors are those of the CUDA runtime. `record` is set if all launches succeed.
/// `space`: of sm90's prefill over 8-bit caches (StepLayout::widen).
Status launch(const KernelChoice& choice, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord& record, const sm90::WidenSpace* space = nullptr);

}  // namespace fovea::cuda
