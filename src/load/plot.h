#pragma once
// A run as a picture.
#include <string>

#include "load/bench.h"

namespace fovea::load {

/// An SVG of its own (no script, no outside file), light or dark as the reader's system is: what share of the
/// requests was served within which latency, with p50, p90 and p99, and the throughput over time.
std::string plot_svg(const BenchConfig& config, const BenchResult& result);

}  // namespace fovea::load
