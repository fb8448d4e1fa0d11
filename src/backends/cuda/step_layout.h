#pragma once
// Where a step's schedule and partial results lie in the workspace: a pure function of spec, kernel and
// limits.
#include "backends/cuda/kernel_choice.h"
#include "kernels/cuda/plan/plan.h"

namespace fovea::cuda {

struct StepLayout {
  PlanPolicy policy;
  PlanLayout plan;
  int64_t max_items = 0, max_parts = 0;
  size_t num_items = 0, items = 0, partial_state = 0, partial_out = 0;  ///< offsets in bytes
  size_t bytes = 0;
};

/// Errors: limits whose step can't be counted in 32 bits, with the numbers.
Result<StepLayout> step_layout(const AttentionSpec& spec, const KernelChoice& choice,
                               const AttentionLimits& limits);

}  // namespace fovea::cuda
