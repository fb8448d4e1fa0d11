#pragma once
// Checks that every backend makes before it trusts a spec or a step's arrays.
#include "fovea/attention_backend.h"
#include "fovea/result.h"

namespace fovea {

/// Refuses a spec that no backend could mean anything by (heads that don't divide, no scale, ...).
Status check_spec(const AttentionSpec& spec);

/// Refuses limits that are negative or inconsistent.
Status check_limits(const AttentionLimits& limits);

/// check_spec, then every reason of validate() for either phase that `info` offers, as one error.
Status check_supported(const BackendInfo& info, const AttentionSpec& spec);

/// The page size that plan() works with: the spec's, or the backend's preferred one.
int page_size_of(const BackendInfo& info, const AttentionSpec& spec);

/// Refuses a step whose arrays disagree with one another, exceed `limits`, or lack what spec.mask reads.
/// Looks at page ids where meta.num_pages is given. O(B), and O(pages) with them.
Status check_batch(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                   int page_size);

/// Refuses a layer's arguments that are not what the step was planned for: a view of another page size, a
/// dtype that is not stored or without its scales, a form that the spec does not say, sinks or slopes
/// missing.
Status check_args(const AttentionArgs& args, const AttentionSpec& spec, int page_size);

}  // namespace fovea
