#pragma once
// Offsets of a step's schedule and partial results in the workspace: a pure function of spec, kernel and
// limits.
#include "backends/cuda/kernel_choice.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/sm90/widen_layout.h"

namespace fovea::cuda {

struct StepLayout {
  PlanPolicy policy;
  AttentionLimits limits;  ///< enforced on the device
  int64_t max_items = 0, max_partials = 0;
  int partial_rows = 0;
  /// Sparse: `items` has one for each token (mla/lists.h), from which each forward makes list_items for the
  /// tiles of heads and the splits of a list.
  int head_tiles = 1, list_splits = 1;
  /// Offsets in bytes. num_items and error are at the start of the workspace.
  size_t num_items = 0, error = 0, page_fault = 0, queue = 0, bad_pages = 0, items = 0, arrivals = 0,
         partial_state = 0, partial_out = 0;
  size_t widened = 0;                                    ///< where the kernel widens the cache first
  sm90::WidenLayout widen;                               ///< its space
  size_t num_list_items = 0, list_items = 0, slots = 0;  ///< sparse
  size_t bytes = 0;
};

/// Errors: limits whose work items, or whose rows of an 8-bit cache, exceed 32-bit counters, with the
/// numbers.
Result<StepLayout> step_layout(const AttentionSpec& spec, const KernelChoice& choice,
                               const AttentionLimits& limits);

/// Bytes of the partial results of a step; saturates at the largest int64_t.
int64_t partial_bytes(const AttentionSpec& spec, const KernelChoice& choice, const AttentionLimits& limits);

}  // namespace fovea::cuda
