#include "model/audio_convolutions.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

// Rows whose windows are gathered at a time: enough for an efficient GEMM; 3 * 1280 * 128 floats = 2 MiB of
// scratch for the largest Whisper.
constexpr int64_t kBlock = 128;

/// out[c * 3 + k] = in[frame + k - 1][c], zero outside [0, frames).
void gather(const float* in, int64_t frames, int64_t channels, int64_t frame, float* out) {
  for (int64_t k = 0; k < AudioConvolutions::kWidth; ++k) {
    const int64_t from = frame + k - 1;
    const bool inside = from >= 0 && from < frames;
    for (int64_t c = 0; c < channels; ++c)
      out[c * AudioConvolutions::kWidth + k] = inside ? in[from * channels + c] : 0.0f;
  }
}

/// gelu(conv(in)) of one sequence; in [frames, channels], out [frames / stride, conv.n()].
void convolve(const Linear& conv, const float* in, int64_t frames, int64_t stride, float* window, float* out,
              ThreadPool& pool) {
  const int64_t width = conv.weight.k(), channels = width / AudioConvolutions::kWidth, n = conv.weight.n();
  const int64_t rows = frames / stride;
  for (int64_t first = 0; first < rows; first += kBlock) {
    const int64_t count = std::min(kBlock, rows - first);
    for_rows(count, count * width, pool,
             [&](int64_t r) { gather(in, frames, channels, (first + r) * stride, window + r * width); });
    conv.forward(window, width, count, out + first * n, n, pool);
    activate(Activation::gelu, out + first * n, n, out + first * n, n, count, n, pool);
  }
}

}  // namespace

std::vector<float> AudioConvolutions::windows(std::span<const float> features,
                                              std::span<const int32_t> offsets, int64_t mel_bins) {
  const int64_t rows = int64_t{kStride} * offsets.back(), width = kWidth * mel_bins;
  FOVEA_CHECK(static_cast<int64_t>(features.size()) == rows * mel_bins);
  std::vector<float> out(static_cast<size_t>(rows * width));
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t first = int64_t{kStride} * offsets[b], end = int64_t{kStride} * offsets[b + 1];
    for (int64_t row = first; row < end; ++row)
      gather(features.data() + first * mel_bins, end - first, mel_bins, row - first,
             out.data() + row * width);
  }
  return out;
}

int64_t AudioConvolutions::window_floats() const {
  return kBlock * std::max(first.weight.k(), second.weight.k());
}

void AudioConvolutions::forward(const float* features, std::span<const int32_t> offsets, float* between,
                                float* window, float* out, ThreadPool& pool) const {
  const int64_t mel_bins = first.weight.k() / kWidth, hidden = first.weight.n();
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t frame = int64_t{kStride} * offsets[b], frames = int64_t{kStride} * offsets[b + 1] - frame;
    convolve(first, features + frame * mel_bins, frames, 1, window, between, pool);
    convolve(second, between, frames, kStride, window, out + offsets[b] * hidden, pool);
  }
}

}  // namespace fovea
