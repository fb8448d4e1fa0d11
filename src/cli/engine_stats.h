#pragma once
// What the engine did, for people.
#include <string>

#include "fovea/engine.h"

namespace fovea::cli {

/// Lines of steps, rates, pages, and how long running answers waited for their next token: measured, and the
/// bound that the rows of one step set.
std::string describe_stats(const EngineStats& stats);

}  // namespace fovea::cli
