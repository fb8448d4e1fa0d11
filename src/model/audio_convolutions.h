#pragma once
// The two convolutions at the start of Whisper's encoder: log-mel frames in, half as many rows out.
#include <cstdint>
#include <span>
#include <vector>

#include "model/weights.h"

namespace fovea {

struct AudioConvolutions {
  static constexpr int kWidth = 3;   ///< kernel width in frames; zero padding of one frame on both sides
  static constexpr int kStride = 2;  ///< of the second

  Linear first;   ///< [hidden, mel_bins * 3], stride 1
  Linear second;  ///< [hidden, hidden * 3], stride 2

  /// The inputs of the first for all sequences: [2 T, mel_bins * 3], features and offsets as of forward().
  static std::vector<float> windows(std::span<const float> features, std::span<const int32_t> offsets,
                                    int64_t mel_bins);

  int64_t bytes() const { return first.bytes() + second.bytes(); }
  /// Floats of forward()'s `window`.
  int64_t window_floats() const;

  /// gelu(second(gelu(first(features)))) for each sequence separately. features [2 T, mel_bins] and out [T,
  /// hidden], where T = offsets.back() and sequence b owns rows [offsets[b], offsets[b + 1]) of out. between
  /// [2 T, hidden] is scratch.
  void forward(const float* features, std::span<const int32_t> offsets, float* between, float* window,
               float* out, ThreadPool& pool) const;
};

}  // namespace fovea
