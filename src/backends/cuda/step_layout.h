#pragma once
// Where a step's schedule and partial results lie in the workspace: a pure function of spec, kernel and
// limits.
#include "backends/cuda/kernel_choice.h"
#include "kernels/cuda/plan/plan.h"

namespace fovea::cuda {

struct StepLayout {
  PlanPolicy policy;
  AttentionLimits limits;  ///< that the device holds the step to
  int64_t max_items = 0, max_partials = 0;
  int partial_rows = 0;
  /// Offsets in bytes. The first two are the first bytes of the workspace.
  size_t num_items = 0, error = 0, page_fault = 0, queue = 0, bad_pages = 0, items = 0, arrivals = 0,
         partial_state = 0, partial_out = 0;
  size_t bytes = 0;
};

/// Errors: limits whose step can't be counted in 32 bits, with the numbers.
Result<StepLayout> step_layout(const AttentionSpec& spec, const KernelChoice& choice,
                               const AttentionLimits& limits);

/// What the partial results of a step take; the largest number where 64 bits don't count them.
int64_t partial_bytes(const AttentionSpec& spec, const KernelChoice& choice, const AttentionLimits& limits);

}  // namespace fovea::cuda
