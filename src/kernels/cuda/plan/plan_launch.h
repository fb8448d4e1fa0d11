#pragma once
// Launches the planner.
#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/plan/plan.h"

namespace fovea::cuda {

/// Queues one kernel of one block that makes the plan in `workspace` from device arrays. Errors, before
/// anything is queued: more sequences than the limits, a workspace too small or not 64-byte aligned, arrays
/// missing. What the host can't see (lengths beyond the limits) leaves an empty plan and PlanHeader::error.
Status launch_plan(const PlanPolicy& policy, const PlanLayout& layout, const PlanInput& input,
                   Workspace workspace, CudaStream& stream);

}  // namespace fovea::cuda
