#pragma once
// How many rows of a sequence one decode step may have, so that each has the bits of a step of its own.
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/backend_info.h"

namespace fovea {

/// Rows of one sequence, as a step that verifies drafts has them, up to `most`. 1: the backend claims nothing
/// for more, and each row must be a sequence of its own.
int alike_decode_rows(const BackendInfo& info, const AttentionSpec& spec, const AttentionLimits& limits,
                      int most);

}  // namespace fovea
