#pragma once
// Widening of an 8-bit or x-packed cache in front of a prefill: the rows that the step's sequences see become
// contiguous rows of the queries' type, exactly, so that the kernels of 16-bit caches read them by TMA.
#include <cuda_runtime.h>

#include "kernels/cuda/common/params.h"
#include "kernels/cuda/sm90/widen_layout.h"

namespace fovea::cuda::sm90 {

/// Queues the kernel that plans the windows: the items of each refer to the rows of the space.
cudaError_t queue_widen_plan(const AttentionParams& p, const KernelInfo& kernel, const WidenSpace& space,
                             cudaStream_t stream);
/// Queues the widening of a window's rows, and returns in `p` the parameters of a kernel that reads them.
cudaError_t queue_widen(AttentionParams& p, const KernelInfo& kernel, const WidenSpace& space, int window,
                        int multiprocessors, cudaStream_t stream);

}  // namespace fovea::cuda::sm90
