#include "cli/encoder_rows.h"

#include <algorithm>

#include "audio/wav.h"
#include "model/decoder_prompt.h"

namespace fovea::cli {
namespace {

// The least bias that a request may have: a probability e^-100 times the others'.
constexpr float kNever = -100.0f;

Result<std::vector<float>> features_of(const std::string& path, const LogMelConfig& config) {
  FOVEA_TRY(audio, load_wav(path));
  if (audio.sample_rate != config.sample_rate)
    return unsupported(path + ": its sample rate is " + std::to_string(audio.sample_rate) +
                       " Hz; this model hears " + std::to_string(config.sample_rate) +
                       " Hz: resample it, for instance with ffmpeg -i IN -ar " +
                       std::to_string(config.sample_rate) + " -ac 1 OUT.wav");
  auto features = log_mel(config, audio.samples);
  if (!features) return Error{features.error().code, path + ": " + features.error().message};
  return features;
}

}  // namespace

Result<EncoderRows> EncoderRows::create(const Engine& engine, const std::string& generation_config) {
  EncoderRows rows;
  const std::string& dir = engine.info().model_dir;
  FOVEA_TRY(model, load_model_config(dir, generation_config));
  if (model.kind != ModelKind::encoder_decoder) return rows;
  if (model.encoder->mel_bins > 0) {
    FOVEA_TRY(audio, load_log_mel_config(dir, model));
    rows.audio_ = audio;
  }
  rows.model_ = std::move(model);
  return rows;
}

Status EncoderRows::fill(const Engine& engine, const InputRow& row, const std::string& prompt,
                         GenerateRequest& request) const {
  if (!row.messages.empty())
    return invalid("this model reads " + std::string(audio_ ? "audio" : "one text") + ", not messages");
  if (audio_) {
    if (!row.audio) return invalid("this model hears audio: give --audio FILE.wav or rows with \"audio\"");
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

void EncoderRows::force(GenerateRequest& request) const {
  const DecoderForcing& forcing = model_->forcing;
  SamplingParams& sampling = request.sampling;
  for (const int32_t id : forcing.suppressed) {
    const bool given =
        std::ranges::find(sampling.logit_bias, id, &LogitBias::token_id) != sampling.logit_bias.end();
    if (!given) sampling.logit_bias.push_back({id, kNever});
  }
  const auto prompt = static_cast<int>(request.prompt_ids.size());
  if (!sampling.max_tokens && forcing.max_length)
    sampling.max_tokens = std::max(1, *forcing.max_length - prompt);
  int least = std::max(0, forcing.min_length - prompt);
  // An end token may not come first where the model says so.
  for (const int32_t id : forcing.suppressed_first)
    if (std::ranges::count(model_->eos_token_ids, id) > 0) least = std::max(least, 1);
  if (sampling.min_tokens == 0) sampling.min_tokens = std::min(least, sampling.max_tokens.value_or(least));
}

}  // namespace fovea::cli
