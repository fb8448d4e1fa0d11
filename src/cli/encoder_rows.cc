#include "cli/encoder_rows.h"

#include "audio/resample.h"
#include "audio/wav.h"
#include "model/decoder_prompt.h"

namespace fovea::cli {
namespace {

Result<std::vector<float>> features_of(const std::string& path, const LogMelConfig& config) {
  FOVEA_TRY(audio, load_wav(path, config.chunk_length));
  const auto named = [&](const Error& error) { return Error{error.code, path + ": " + error.message}; };
  const auto resampler = Resampler::create(audio.sample_rate, config.sample_rate);
  if (!resampler) return named(resampler.error());
  auto features = log_mel(
      config,
      resampler->run(audio.samples, 0, 0, resampler->outputs(static_cast<int64_t>(audio.samples.size()))));
  if (!features) return named(features.error());
  return features;
}

}  // namespace

Result<EncoderRows> EncoderRows::create(const Engine& engine, const std::string& generation_config) {
  EncoderRows rows;
  const std::string& dir = engine.info().model_dir;
  FOVEA_TRY(model, load_model_config(dir, generation_config));
  if (model.kind != ModelKind::encoder_decoder) return rows;
  if (model.encoder->mel_bins > 0) {
    FOVEA_TRY(audio, load_log_mel_config(dir, {model.encoder->mel_bins, model.encoder->max_position}));
    rows.audio_ = audio;
  }
  rows.model_ = std::move(model);
  return rows;
}

Status EncoderRows::fill(const Engine& engine, const InputRow& row, const std::string& prompt,
                         GenerateRequest& request) const {
  if (row.chat)
    return invalid("this model reads " + std::string(audio_ ? "audio" : "one text") + ", not messages");
  if (audio_) {
    if (!row.audio) return invalid("this model takes audio: give --audio FILE.wav or rows with \"audio\"");
    FOVEA_TRY(features, features_of(*row.audio, *audio_));
    request.encoder_features = std::move(features);
  } else if (row.audio) {
    return invalid(*row.audio + ": this model (" + model_->architecture + ") reads text, not audio");
  } else if (row.ids) {
    request.encoder_ids = *row.ids;
  } else {
    FOVEA_TRY(ids, engine.tokenize(*row.text, true));
    request.encoder_ids = std::move(ids);
  }
  if (prompt.empty()) {
    FOVEA_TRY(ids, default_decoder_prompt(*model_));
    request.prompt_ids = std::move(ids);
  } else {
    FOVEA_TRY(ids, engine.tokenize(prompt, false));
    request.prompt_ids = std::move(ids);
  }
  return {};
}

}  // namespace fovea::cli
