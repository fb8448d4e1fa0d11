#pragma once
// Arrival times of requests.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fovea::load {

/// Seconds from the start, ascending, the first at 0. Gaps are gamma-distributed with mean 1 / rate and shape
/// `burstiness`: 1 = a Poisson process, less = in bursts, more = more even. They are scaled so that the last
/// request is sent at (count - 1) / rate, which gives the requested rate for any seed; all at 0 if infinite.
std::vector<double> arrival_times(size_t count, double rate, double burstiness, uint64_t seed);

}  // namespace fovea::load
