#include "audio/log_mel.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>

#include "audio/dft.h"
#include "files/json_fields.h"
#include "files/text_file.h"

namespace fovea {
namespace {

constexpr size_t kMaxFileBytes = 16u << 20;  // old files contain the filters as text
// Half a frame is reflected at the window's ends, which fits into one second at 1000 Hz.
constexpr int kMaxFft = 1024;
constexpr double kMaxMelHz = 8000.0;
constexpr float kDynamicRange = 8.0f;  // log10: 80 dB

double hz_to_mel(double hz) {
  return hz < 1000 ? 3 * hz / 200 : 15 + 27 * std::log(hz / 1000) / std::log(6.4);
}
double mel_to_hz(double mel) {
  return mel < 15 ? 200 * mel / 3 : 1000 * std::exp(std::log(6.4) / 27 * (mel - 15));
}

void refuse_other_extractors(Fields& fields) {
  if (fields.string("feature_extractor_type", "WhisperFeatureExtractor") != "WhisperFeatureExtractor")
    fields.refuse("feature_extractor_type", "supported is WhisperFeatureExtractor", ErrorCode::unsupported);
  if (fields.number("dither", 0, 1e9, 0.0) != 0)
    fields.refuse("dither", "only 0 is supported: noise would make results random", ErrorCode::unsupported);
  if (fields.number("padding_value", -1e9, 1e9, 0.0) != 0)
    fields.refuse("padding_value", "only 0 (silence) is supported", ErrorCode::unsupported);
  if (fields.boolean("do_normalize", false))
    fields.refuse("do_normalize", "only false is supported", ErrorCode::unsupported);
}

/// The window padded with n_fft / 2 samples by reflection about its first and last sample.
std::vector<double> padded_window(const LogMelConfig& c, std::span<const float> samples) {
  const auto half = static_cast<size_t>(c.n_fft / 2), size = static_cast<size_t>(c.window_samples());
  std::vector<double> x(size + 2 * half);
  std::copy(samples.begin(), samples.end(), x.begin() + static_cast<std::ptrdiff_t>(half));
  for (size_t i = 1; i <= half; ++i) {
    x[half - i] = x[half + i];
    x[half + size - 1 + i] = x[half + size - 1 - i];
  }
  return x;
}

}  // namespace

Result<LogMelConfig> parse_log_mel_config(std::string_view text, const std::string& file,
                                          const AudioEncoderInput& model) {
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  LogMelConfig c;
  refuse_other_extractors(fields);
  c.mel_bins = fields.small("feature_size", 1, 1024, c.mel_bins);
  c.sample_rate = fields.small("sampling_rate", 1000, 192'000, c.sample_rate);
  c.n_fft = fields.small("n_fft", 2, kMaxFft, c.n_fft);
  c.hop_length = fields.small("hop_length", 1, kMaxFft, c.hop_length);
  c.chunk_length = fields.small("chunk_length", 1, 600, c.chunk_length);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  if (c.n_fft % 2 != 0)
    return unsupported(file + ": n_fft is " + std::to_string(c.n_fft) + "; it must be even");
  if (model.mel_bins != c.mel_bins)
    return invalid(file + ": feature_size is " + std::to_string(c.mel_bins) +
                   ", but config.json's num_mel_bins is " + std::to_string(model.mel_bins) +
                   "; the two must come from the same model");
  if (c.frames() != 2 * int64_t{model.positions})
    return invalid(file + ": chunk_length x sampling_rate / hop_length is " + std::to_string(c.frames()) +
                   " frames, but config.json's max_source_positions requires 2 x " +
                   std::to_string(model.positions) + "; the two must come from the same model");
  return c;
}

Result<LogMelConfig> load_log_mel_config(const std::string& dir, const AudioEncoderInput& model) {
  const std::string file = dir + "/preprocessor_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return not_found(file +
                     ": missing; it defines how audio becomes the model's input: copy it from the model");
  FOVEA_TRY(text, read_text_file(file, kMaxFileBytes));
  return parse_log_mel_config(text, file, model);
}

std::vector<double> slaney_mel_filters(const LogMelConfig& c) {
  const auto bins = static_cast<size_t>(c.n_fft) / 2 + 1, mels = static_cast<size_t>(c.mel_bins);
  const double top = hz_to_mel(std::min(kMaxMelHz, c.sample_rate / 2.0));
  std::vector<double> edges(mels + 2);
  for (size_t i = 0; i < edges.size(); ++i)
    edges[i] = mel_to_hz(top * static_cast<double>(i) / static_cast<double>(mels + 1));
  std::vector<double> filters(mels * bins);
  for (size_t m = 0; m < mels; ++m)
    for (size_t k = 0; k < bins; ++k) {
      const double hz = static_cast<double>(k) * c.sample_rate / c.n_fft;
      const double rise = (hz - edges[m]) / (edges[m + 1] - edges[m]);
      const double fall = (edges[m + 2] - hz) / (edges[m + 2] - edges[m + 1]);
      filters[m * bins + k] = std::max(0.0, std::min(rise, fall)) * 2 / (edges[m + 2] - edges[m]);
    }
  return filters;
}

Result<std::vector<float>> log_mel(const LogMelConfig& c, std::span<const float> samples) {
  if (static_cast<int64_t>(samples.size()) > c.window_samples())
    return invalid("the audio is " + std::to_string(samples.size() / static_cast<size_t>(c.sample_rate)) +
                   " seconds long (" + std::to_string(samples.size()) +
                   " samples); this model takes at most " + std::to_string(c.chunk_length) +
                   " seconds: cut it into pieces");
  const auto n_fft = static_cast<size_t>(c.n_fft), bins = n_fft / 2 + 1,
             mels = static_cast<size_t>(c.mel_bins);
  const std::vector<double> x = padded_window(c, samples), filters = slaney_mel_filters(c);
  std::vector<double> hann(n_fft), frame(n_fft), power(bins);
  for (size_t i = 0; i < n_fft; ++i)  // periodic
    hann[i] =
        0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n_fft));
  Dft dft(c.n_fft);
  std::vector<float> out(static_cast<size_t>(c.frames()) * mels);
  for (size_t t = 0; t < static_cast<size_t>(c.frames()); ++t) {
    const double* from = x.data() + t * static_cast<size_t>(c.hop_length);
    for (size_t i = 0; i < n_fft; ++i)
      frame[i] = from[i] * hann[i];
    const Complex* spectrum = dft.transform(frame.data());
    for (size_t k = 0; k < bins; ++k)
      power[k] = spectrum[k].re * spectrum[k].re + spectrum[k].im * spectrum[k].im;
    for (size_t m = 0; m < mels; ++m) {
      double sum = 0;
      for (size_t k = 0; k < bins; ++k)
        sum += filters[m * bins + k] * power[k];
      out[t * mels + m] = static_cast<float>(std::log10(std::max(sum, 1e-10)));
    }
  }
  const float floor = *std::max_element(out.begin(), out.end()) - kDynamicRange;
  for (float& value : out)
    value = (std::max(value, floor) + 4.0f) / 4.0f;
  return out;
}

}  // namespace fovea
