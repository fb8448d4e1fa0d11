#pragma once
// Sample rate conversion: a windowed sinc, any part of the output at a time.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "audio/wav.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// The low-pass filter passes 0.9 of the lower rate's band and is 80 dB down at its end (a Kaiser window).
/// An output's bits do not depend on which others are computed with it. Equal rates copy.
class Resampler {
 public:
  Resampler() = default;
  /// Rates in samples per second, whose ratio must be one of small integers (each at most 1000), as those of
  /// the usual rates are.
  static Result<Resampler> create(int from, int to);

  /// Outputs of `inputs` samples: their duration at the new rate, rounded up.
  int64_t outputs(int64_t inputs) const { return (inputs * up_ + down_ - 1) / down_; }
  /// The inputs [begin, end) that outputs [first, first + count) depend on; it may exceed the signal, which
  /// is silent outside.
  std::pair<int64_t, int64_t> inputs(int64_t first, int64_t count) const;
  /// Outputs [first, first + count) of a signal whose samples from `begin` on are `input`, silent outside.
  std::vector<float> run(std::span<const float> input, int64_t begin, int64_t first, int64_t count) const;

 private:
  int64_t up_ = 1, down_ = 1;  // the ratio of the rates, in lowest terms
  int64_t reach_ = 0;          // inputs on either side
  std::vector<double> taps_;   // [up_, 2 * reach_ + 1], each phase sums to 1; empty = copy
};

/// Outputs [first, first + count) of a file; errors as WavFile::read().
Result<std::vector<float>> read_resampled(const WavFile& file, const Resampler& resampler, int64_t first,
                                          int64_t count);

}  // namespace fovea
