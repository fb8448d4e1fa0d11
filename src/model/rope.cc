#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fovea {
namespace {

/// Wavelengths shorter than L0 / high keep their frequency f, those longer than L0 / low get f / s, with a
/// blend in between. Llama 4 Scout has low = high: no blend, and f / s at the boundary itself (as in vLLM).
double scale_llama3(double f, const RopeConfig& rope) {
  const auto original = static_cast<double>(rope.original_max_position);
  const double wavelength = 2 * std::numbers::pi / f;
  if (wavelength < original / rope.high_freq_factor) return f;
  if (wavelength > original / rope.low_freq_factor || rope.low_freq_factor == rope.high_freq_factor)
    return f / rope.factor;
  const double blend =
      (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - blend) * f / rope.factor + blend * f;
}

/// NTK by parts (YaRN): dimensions that turn more than beta_fast times in the original context keep their
/// frequency, those that turn less than beta_slow times get f / s, with a linear ramp in between.
double scale_yarn(double f, size_t t, int rotary_dim, const RopeConfig& rope) {
  const auto dimension = [&](double rotations) {
    return rotary_dim *
           std::log(static_cast<double>(rope.original_max_position) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(t) - low) / (high - low), 0.0, 1.0);
  return f / rope.factor * ramp + f * (1 - ramp);
}

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope, int head_dim) {
  const int rotary_dim = rope.rotary_dim > 0 ? rope.rotary_dim : head_dim;
  const std::vector<double>& divisors = rope.long_context ? rope.long_divisors : rope.short_divisors;
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t t = 0; t < frequencies.size(); ++t) {
    const double f = std::pow(rope.theta, -2.0 * static_cast<double>(t) / rotary_dim);
    switch (rope.scaling) {
      case RopeScaling::none: frequencies[t] = f; break;
      case RopeScaling::linear: frequencies[t] = f / rope.factor; break;
      case RopeScaling::llama3: frequencies[t] = scale_llama3(f, rope); break;
      case RopeScaling::yarn: frequencies[t] = scale_yarn(f, t, rotary_dim, rope); break;
      case RopeScaling::longrope: frequencies[t] = f / divisors[t]; break;
    }
  }
  return frequencies;
}

}  // namespace fovea
