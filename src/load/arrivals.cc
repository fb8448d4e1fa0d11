#include "load/arrivals.h"

#include <cmath>

#include "load/random.h"

namespace fovea::load {

std::vector<double> arrival_times(size_t count, double rate, double burstiness, uint64_t seed) {
  std::vector<double> times(count, 0);
  if (std::isinf(rate) || count < 2) return times;
  Random random(seed);
  for (size_t i = 1; i < count; ++i)
    times[i] = times[i - 1] + random.gamma(burstiness);
  const double span = static_cast<double>(count - 1) / rate, drawn = times.back();
  for (size_t i = 1; i < count; ++i)  // with extreme burstiness all draws may be zero
    times[i] =
        drawn > 0 ? times[i] / drawn * span : span * static_cast<double>(i) / static_cast<double>(count - 1);
  return times;
}

}  // namespace fovea::load
