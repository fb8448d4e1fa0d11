#include "audio/log_mel.h"

#include <gtest/gtest.h>
#include <utility>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "audio/dft.h"
#include "fovea/result.h"

namespace fovea {
namespace {

TEST(Dft, MatchesItsSum) {
  for (const int n : {1, 2, 7, 12, 26, 400}) {
    std::vector<double> x;
    for (int t = 0; t < n; ++t)
      x.push_back(std::sin(0.7 * t * t) + 0.3 * t / n);
    Dft dft(n);
    const Complex* got = dft.transform(x.data());
    for (int k = 0; k < n; ++k) {
      double re = 0, im = 0;
      for (int t = 0; t < n; ++t) {
        const double angle = -2 * std::numbers::pi * k * t / n;
        re += x[static_cast<size_t>(t)] * std::cos(angle);
        im += x[static_cast<size_t>(t)] * std::sin(angle);
      }
      ASSERT_NEAR(got[k].re, re, 1e-10) << n << " " << k;
      ASSERT_NEAR(got[k].im, im, 1e-10) << n << " " << k;
    }
  }
}

TEST(LogMel, FiltersAreSlaneys) {
  const LogMelConfig config;
  const auto filters = slaney_mel_filters(config);
  constexpr size_t kBins = 201;
  ASSERT_EQ(filters.size(), 80 * kBins);
  // 8000 Hz is 15 + 27 ln(8) / ln(6.4) = 45.2456 mel; the edges lie 45.2456 / 81 = 0.55859 mel = 37.239 Hz
  // apart below 1000 Hz. Bin 1 (40 Hz) is on the falling side of filter 0: (74.478 - 40) / 37.239 = 0.92586,
  // scaled by 2 / 74.478.
  EXPECT_NEAR(filters[1], 0.92586 * 2 / 74.478, 1e-5);
  EXPECT_EQ(filters[0], 0);
  for (size_t m = 0; m < 80; ++m) {
    // A triangle of base w and height 2 / w has area 1; sampled every 40 Hz, wide ones are close to that.
    double area = 0;
    for (size_t k = 0; k < kBins; ++k)
      area += 40 * filters[m * kBins + k];
    if (m >= 40) {
      EXPECT_NEAR(area, 1.0, 0.1) << m;
    }
    EXPECT_GT(area, 0) << m;
  }
}

/// The definition for one frame: reflection, window, sum of sines, filters.
std::vector<double> plain_frame(const LogMelConfig& c, const std::vector<float>& samples, int64_t frame) {
  const int64_t window = c.window_samples();
  std::vector<double> power;
  for (int k = 0; k <= c.n_fft / 2; ++k) {
    double re = 0, im = 0;
    for (int i = 0; i < c.n_fft; ++i) {
      int64_t at = frame * c.hop_length + i - c.n_fft / 2;
      if (at < 0) at = -at;
      if (at >= window) at = 2 * (window - 1) - at;
      if (at >= static_cast<int64_t>(samples.size())) continue;
      const double hann = 0.5 * (1 - std::cos(2 * std::numbers::pi * i / c.n_fft));
      const double x = hann * static_cast<double>(samples[static_cast<size_t>(at)]);
      re += x * std::cos(2 * std::numbers::pi * k * i / c.n_fft);
      im -= x * std::sin(2 * std::numbers::pi * k * i / c.n_fft);
    }
    power.push_back(re * re + im * im);
  }
  const auto filters = slaney_mel_filters(c);
  std::vector<double> out;
  for (int m = 0; m < c.mel_bins; ++m) {
    double sum = 0;
    for (size_t k = 0; k < power.size(); ++k)
      sum += filters[static_cast<size_t>(m) * power.size() + k] * power[k];
    out.push_back(std::log10(std::max(sum, 1e-10)));
  }
  return out;
}

TEST(LogMel, MatchesTheDefinition) {
  LogMelConfig config;
  config.sample_rate = 1600;  // a small window: the same code
  config.n_fft = 40;
  config.hop_length = 16;
  config.chunk_length = 2;
  config.mel_bins = 9;
  for (const size_t length : {3200u, 1000u, 1u}) {  // the whole window, a part, one sample
    std::vector<float> samples;
    for (size_t i = 0; i < length; ++i)
      samples.push_back(static_cast<float>(std::sin(0.02 * static_cast<double>(i * i % 997)) * 0.4));
    samples[0] = 0.3f;
    const auto features = log_mel(config, samples);
    ASSERT_TRUE(features.ok());
    ASSERT_EQ(features->size(), 200u * 9u);
    std::vector<double> expected;
    for (int64_t t = 0; t < 200; ++t)
      for (const double v : plain_frame(config, samples, t))
        expected.push_back(v);
    const double top = *std::max_element(expected.begin(), expected.end());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(static_cast<double>((*features)[i]), (std::max(expected[i], top - 8) + 4) / 4, 2e-6)
          << length << " " << i;
  }
}

TEST(LogMel, SilenceAndNothingAreTheFloor) {
  const LogMelConfig config;
  for (const size_t length : {0u, 480'000u}) {
    const auto features = log_mel(config, std::vector<float>(length));
    ASSERT_TRUE(features.ok());
    ASSERT_EQ(features->size(), 3000u * 80u);
    for (const float v : *features)
      ASSERT_EQ(v, -1.5f);  // (-10 + 4) / 4
  }
}

TEST(LogMel, TooMuchAudioIsRefused) {
  const auto features = log_mel(LogMelConfig(), std::vector<float>(480'001));
  ASSERT_FALSE(features.ok());
  EXPECT_NE(features.error().message.find("480001 samples"), std::string::npos);
  EXPECT_NE(features.error().message.find("30 seconds"), std::string::npos);
}

TEST(LogMelConfig, IsReadAndMustFitTheModel) {
  const char* text =
      R"({"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 128, "n_fft": 400,
                         "hop_length": 160, "chunk_length": 30, "sampling_rate": 16000, "dither": 0.0})";
  const auto config =
      parse_log_mel_config(text, "m/preprocessor_config.json", {.mel_bins = 128, .positions = 1500});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->mel_bins, 128);
  EXPECT_EQ(config->frames(), 3000);
  const auto error = [](const std::string& json, const AudioEncoderInput& model) {
    const auto refused = parse_log_mel_config(json, "m/p.json", model);
    return refused.ok() ? std::string() : refused.error().message;
  };
  EXPECT_NE(error(text, {.mel_bins = 80, .positions = 1500})
                .find("feature_size is 128, but config.json's num_mel_bins is 80"),
            std::string::npos);
  EXPECT_NE(error(text, {.mel_bins = 128, .positions = 1000}).find("3000 frames"), std::string::npos);
  for (const auto& [json, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"feature_extractor_type": "Wav2Vec2FeatureExtractor"})", "feature_extractor_type is"},
           {R"({"dither": 0.1})", "dither is 0.1"},
           {R"({"padding_value": 1})", "padding_value is 1"},
           {R"({"do_normalize": true})", "do_normalize is true"},
           {R"({"n_fft": 401})", "n_fft is 401"},
           {R"({"n_fft": 100000})", "n_fft is 100000"},
           {R"({"hop_length": 0})", "hop_length is 0"},
           {"[]", "must hold a JSON object"}})
    EXPECT_NE(error(json, {.mel_bins = 80, .positions = 1500}).find(part), std::string::npos)
        << json << error(json, {.mel_bins = 80, .positions = 1500});
}

}  // namespace
}  // namespace fovea
