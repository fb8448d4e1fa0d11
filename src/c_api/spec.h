#pragma once
// Converts fovea_attention_spec and fovea_limits to the internal types.
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/c_api.h"
#include "fovea/result_fwd.h"

namespace fovea::c_api {

Result<AttentionSpec> read_spec(const fovea_attention_spec* spec);
Result<AttentionLimits> read_limits(const fovea_limits* limits);

}  // namespace fovea::c_api
