#pragma once
// When requests are sent.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fovea::load {

/// Seconds from the start, ascending, the first at 0. Gaps are gamma-distributed with mean 1 / rate and shape
/// `burstiness`: 1 = a Poisson process, less = in bursts, more = more even. They are scaled so that the last
/// request comes at (count - 1) / rate: the rate is the one asked for whatever the seed. An infinite rate:
/// all at 0.
std::vector<double> arrival_times(size_t count, double rate, double burstiness, uint64_t seed);

}  // namespace fovea::load
