#pragma once
// Environment settings, for programs without command-line flags.
#include "fovea/attention_config.h"
#include "fovea/result_fwd.h"

namespace fovea::c_api {

/// FLASHINFER_USE_TENSOR_CORES=0|1; unset or empty = by the number of query heads. Error: another value.
Status apply_environment(AttentionConfig& config);

}  // namespace fovea::c_api
