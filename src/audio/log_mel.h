#pragma once
// Whisper's input: log-mel spectra of one 30-second window, as in transformers' WhisperFeatureExtractor.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

/// Parameters from preprocessor_config.json.
struct LogMelConfig {
  int mel_bins = 80;        ///< feature_size
  int sample_rate = 16000;  ///< sampling_rate
  int n_fft = 400;          ///< samples per frame
  int hop_length = 160;     ///< samples from one frame to the next
  int chunk_length = 30;    ///< window length in seconds; audio is padded to it with silence

  int64_t window_samples() const { return int64_t{chunk_length} * sample_rate; }
  int64_t frames() const { return window_samples() / hop_length; }
};

/// The input of a model's audio encoder, from config.json; 0 = it has none.
struct AudioEncoderInput {
  int mel_bins = 0;   ///< num_mel_bins
  int positions = 0;  ///< max_source_positions: one for every two frames
};

/// Reads DIR/preprocessor_config.json. It must match the model: feature_size equals its mel bins, and the
/// window's frames are twice its encoder positions.
Result<LogMelConfig> load_log_mel_config(const std::string& dir, const AudioEncoderInput& model);
/// The same from the file's text; `file` is for messages.
Result<LogMelConfig> parse_log_mel_config(std::string_view text, const std::string& file,
                                          const AudioEncoderInput& model);

/// Triangular filters [mel_bins, n_fft / 2 + 1] over 0 Hz to half the sample rate, at most 8000 Hz, equally
/// spaced on Slaney's mel scale (linear below 1000 Hz, logarithmic above) and scaled to equal area.
std::vector<double> slaney_mel_filters(const LogMelConfig& config);

/// [frames, mel_bins]: power spectra of Hann-windowed frames, centred (reflected at both ends of the padded
/// window), through the mel filters, as log10 clamped to at least -10 and at least the window's maximum - 8,
/// then (x + 4) / 4. `samples` at config.sample_rate; more than one window is an error.
Result<std::vector<float>> log_mel(const LogMelConfig& config, std::span<const float> samples);

}  // namespace fovea
