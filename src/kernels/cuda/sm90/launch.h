#pragma once
// Launches the kernels of this family. Nothing here synchronises or allocates; every launch can be captured.
#include "kernels/cuda/common/launch_record.h"
#include "kernels/cuda/sm90/select.h"
#include "kernels/cuda/sm90/widen_layout.h"

struct CUstream_st;

namespace fovea::cuda::sm90 {

/// Queues `kernel`, a result of select(), and where keys may be split the combine kernel, as sm80::launch
/// does: `params.items` holds *params.num_items items, at most `max_items`. Alignment: all rows to 16 bytes.
/// `space`: for prefill over an 8-bit or x-packed cache (is_widened), which is widened into it first; else
/// not used. Errors: a device of another compute capability than 9.0; errors of the CUDA runtime.
Status launch(const KernelInfo& kernel, const AttentionParams& params, int max_items, CUstream_st* stream,
              LaunchRecord* record = nullptr, const WidenSpace* space = nullptr);

}  // namespace fovea::cuda::sm90
