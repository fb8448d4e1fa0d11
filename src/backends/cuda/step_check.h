#pragma once
// What the host can refuse of a step whose arrays lie in device memory: their sizes, and a layer's views.
#include "fovea/attention_backend.h"

namespace fovea::cuda {

/// Refuses a step whose sizes disagree, exceed `limits`, or lack what spec.mask reads. Reads no array.
Status check_step(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                  int page_size);

/// Whether the keys are rows of one tensor: kv_indptr without kv_indices.
bool is_ragged(const BatchMeta& meta);

/// What the planner may let a step have: as many sequences and rows as `meta`, no sequence longer than its
/// row of the page table, and none with keys where the packed mask, which would say what sees them, is
/// missing. `meta` has passed check_step().
AttentionLimits step_limits(const MaskSpec& mask, const AttentionLimits& limits, const BatchMeta& meta,
                            int page_size);

/// Refuses, beyond check_args(): another dtype than was planned for, tensors missing, elements of `out` that
/// overlap in a step of `tokens` rows, strides that kernels do not count, scales of no meaning; with
/// `whole_loads` addresses or strides that are not multiples of the 16 bytes that kernels load at once.
Status check_layer(const AttentionSpec& spec, const AttentionArgs& args, int tokens, bool whole_loads);

}  // namespace fovea::cuda
