#include "audio/resample.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>

#include "fovea/result.h"

namespace fovea {
namespace {

constexpr int64_t kMostPhases = 1000;
constexpr double kBeta = 7.857;        // Kaiser's for 80 dB
constexpr double kZeroCrossings = 50;  // on either side: the transition takes 0.1 of the band
constexpr double kCutoff = 0.95;       // its middle, of half the lower rate

/// The modified Bessel function of order 0.
double bessel(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17; ++k) {
    term *= x / (2 * k) * (x / (2 * k));
    sum += term;
  }
  return sum;
}

}  // namespace

Result<Resampler> Resampler::create(int from, int to) {
  const int common = std::gcd(from, to);
  Resampler out;
  out.up_ = to / common;
  out.down_ = from / common;
  if (from == to) return out;
  if (out.up_ > kMostPhases || out.down_ > kMostPhases)
    return unsupported("a sample rate of " + std::to_string(from) + " Hz can't be converted to " +
                       std::to_string(to) + " Hz: " + std::to_string(out.up_) + " / " +
                       std::to_string(out.down_) + " is no ratio of integers up to " +
                       std::to_string(kMostPhases));
  // Cycles per input sample.
  const double cutoff = kCutoff / 2 * std::min(1.0, static_cast<double>(to) / from);
  const double width = kZeroCrossings / (2 * cutoff);
  out.reach_ = static_cast<int64_t>(std::ceil(width));
  const int64_t size = 2 * out.reach_ + 1;
  out.taps_.resize(static_cast<size_t>(out.up_ * size));
  for (int64_t phase = 0; phase < out.up_; ++phase) {
    double* taps = &out.taps_[static_cast<size_t>(phase * size)];
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) {
      // The output's place after its nearest earlier input, to input i - reach.
      const double u =
          static_cast<double>(phase) / static_cast<double>(out.up_) - static_cast<double>(i - out.reach_);
      const double inside = 1 - (u / width) * (u / width);
      const double x = 2 * std::numbers::pi * cutoff * u;
      taps[i] = inside <= 0 ? 0 : (u == 0 ? 1 : std::sin(x) / x) * bessel(kBeta * std::sqrt(inside));
      sum += taps[i];
    }
    for (int64_t i = 0; i < size; ++i)
      taps[i] /= sum;
  }
  return out;
}

std::pair<int64_t, int64_t> Resampler::inputs(int64_t first, int64_t count) const {
  if (taps_.empty() || count == 0) return {first, first + count};
  return {first * down_ / up_ - reach_, (first + count - 1) * down_ / up_ + reach_ + 1};
}

std::vector<float> Resampler::run(std::span<const float> input, int64_t begin, int64_t first,
                                  int64_t count) const {
  std::vector<float> out(static_cast<size_t>(count));
  const auto end = begin + static_cast<int64_t>(input.size());
  const int64_t size = 2 * reach_ + 1;
  for (int64_t n = 0; n < count; ++n) {
    const int64_t place = (first + n) * down_;
    const int64_t from = place / up_ - reach_;
    if (taps_.empty()) {
      if (first + n >= begin && first + n < end)
        out[static_cast<size_t>(n)] = input[static_cast<size_t>(first + n - begin)];
      continue;
    }
    const double* taps = &taps_[static_cast<size_t>(place % up_ * size)];
    double sum = 0;
    for (int64_t i = std::max<int64_t>(0, begin - from); i < std::min(size, end - from); ++i)
      sum += taps[i] * static_cast<double>(input[static_cast<size_t>(from + i - begin)]);
    out[static_cast<size_t>(n)] = static_cast<float>(sum);
  }
  return out;
}

Result<std::vector<float>> read_resampled(const WavFile& file, const Resampler& resampler, int64_t first,
                                          int64_t count) {
  const auto [from, to] = resampler.inputs(first, count);
  const int64_t begin = std::clamp<int64_t>(from, 0, file.samples());
  const int64_t end = std::clamp<int64_t>(to, begin, file.samples());
  FOVEA_TRY(input, file.read(begin, end - begin));
  return resampler.run(input, begin, first, count);
}

}  // namespace fovea
