#pragma once
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/result_fwd.h"
// Host-side checks of a step whose arrays are in device memory: their sizes, and a layer's views.

namespace fovea::cuda {

/// Refuses a step whose sizes disagree, exceed `limits`, or lack what spec.mask reads. Reads no array.
Status check_step(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                  int page_size);

/// Whether the keys are rows of one tensor: kv_indptr without kv_indices.
bool is_ragged(const BatchMeta& meta);

/// The limits that the planner enforces on a step: as many sequences and rows as `meta`, no sequence longer
/// than its row of the page table, and no keys where the required packed mask is missing. `meta` has passed
/// check_step().
AttentionLimits step_limits(const MaskSpec& mask, const AttentionLimits& limits, const BatchMeta& meta,
                            int page_size);

/// Refuses, in addition to check_args(): a dtype other than the planned one, missing tensors, elements of
/// `out` that overlap in a step of `tokens` rows, strides beyond the range of the kernels, invalid scales;
/// with `whole_loads` also addresses or strides that are not multiples of the kernels' 16-byte loads.
Status check_layer(const AttentionSpec& spec, const AttentionArgs& args, int tokens, bool whole_loads);

}  // namespace fovea::cuda
