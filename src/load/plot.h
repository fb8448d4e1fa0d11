#pragma once
// Plots of a run.
#include <string>

#include "load/bench.h"

namespace fovea::load {

/// A self-contained SVG (no script, no external file) that follows the reader's light or dark theme: the
/// share of requests within each latency, with p50, p90 and p99, and the throughput over time.
std::string plot_svg(const BenchConfig& config, const BenchResult& result);

}  // namespace fovea::load
