#pragma once
// Engine statistics as text.
#include <string>

#include "fovea/engine_stats.h"

namespace fovea::cli {

/// Lines about steps, rates, pages and the inter-token latency of running answers: measured, and the bound
/// given by the rows of one step.
std::string describe_stats(const EngineStats& stats);

}  // namespace fovea::cli
