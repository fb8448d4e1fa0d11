#pragma once
// Checks that every backend makes before it trusts a spec or a step's arrays.
#include "fovea/attention_step.h"
#include "fovea/backend_info.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// Refuses a spec that is invalid for every backend (head counts that don't divide, no scale, ...).
Status check_spec(const AttentionSpec& spec);

/// Why records of MLA in an fp8_ds_mla cache don't fit the spec's sizes: BackendInfo::supports_combination of
/// rows that read them.
std::optional<Reason> check_records(const AttentionSpec& spec, const DeviceInfo& device);

/// Refuses limits that are negative or inconsistent.
Status check_limits(const AttentionLimits& limits);

/// check_spec, then every reason of validate() for either phase that `info` offers, as one error.
Status check_supported(const BackendInfo& info, const AttentionSpec& spec);

/// The page size that plan() works with: the spec's, or the backend's preferred one.
int page_size_of(const BackendInfo& info, const AttentionSpec& spec);

/// Refuses a step whose arrays disagree with one another, exceed `limits`, or lack what spec.mask reads.
/// Checks page ids if meta.num_pages is given. O(B), with page ids O(pages).
Status check_batch(const AttentionSpec& spec, const AttentionLimits& limits, const BatchMeta& meta,
                   int page_size);

/// Refuses arguments of a layer that do not match the plan: a view with another page size, a dtype that is
/// not stored or lacks its scales, a form other than the spec's, missing sinks or slopes.
Status check_args(const AttentionArgs& args, const AttentionSpec& spec, int page_size);

}  // namespace fovea
