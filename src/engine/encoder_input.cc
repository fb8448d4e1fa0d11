#include "engine/encoder_input.h"

#include <cmath>
#include <string>
#include <utility>

#include "model/decoder_prompt.h"

namespace fovea {
namespace {

// Whisper's second convolution has stride 2.
constexpr size_t kFramesPerRow = 2;

std::string str(size_t v) {
  return std::to_string(v);
}

Status check_text(const std::vector<int32_t>& ids, const ModelConfig& config) {
  const auto limit = static_cast<size_t>(config.encoder->max_position);
  if (ids.empty()) return invalid("this model encodes a text first: encoder_ids is empty; give at least one");
  if (ids.size() > limit)
    return invalid("encoder_ids has " + str(ids.size()) + " tokens; this model's encoder takes at most " +
                   str(limit) + "; shorten the text");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= config.vocab_size)
      return invalid("encoder token " + str(i) + " is " + std::to_string(ids[i]) +
                     "; this model's ids are 0 to " + std::to_string(config.vocab_size - 1));
  return {};
}

Status check_audio(const std::vector<float>& features, const EncoderConfig& encoder) {
  const auto bins = static_cast<size_t>(encoder.mel_bins);
  const size_t limit = static_cast<size_t>(encoder.max_position) * kFramesPerRow;
  if (features.empty())
    return invalid("this model encodes audio first: encoder_features is empty; give [frames, " + str(bins) +
                   "] log-mel values");
  if (features.size() % (bins * kFramesPerRow) != 0)
    return invalid("encoder_features has " + str(features.size()) +
                   " values; it must be an even number of frames of " + str(bins) + " mel bins");
  if (features.size() / bins > limit)
    return invalid("encoder_features has " + str(features.size() / bins) +
                   " frames; this model's encoder takes at most " + str(limit) + "; cut the audio");
  for (size_t i = 0; i < features.size(); ++i)
    if (!std::isfinite(features[i]))
      return invalid("encoder_features: mel bin " + str(i % bins) + " of frame " + str(i / bins) +
                     " is not a finite number");
  return {};
}

}  // namespace

Result<std::shared_ptr<const EncoderInput>> take_encoder_input(GenerateRequest& request,
                                                               const ModelConfig& config) {
  if (!config.encoder) {
    if (!request.encoder_ids.empty() || !request.encoder_features.empty())
      return invalid(
          "this model (" + config.architecture +
          ") has no encoder; give encoder_ids and encoder_features to encoder-decoder models only");
    return std::shared_ptr<const EncoderInput>();
  }
  const bool audio = config.encoder->mel_bins > 0;
  if (audio ? !request.encoder_ids.empty() : !request.encoder_features.empty())
    return invalid(audio ? "this model's encoder takes audio: give encoder_features, not encoder_ids"
                         : "this model's encoder takes text: give encoder_ids, not encoder_features");
  FOVEA_RETURN_IF_ERROR(audio ? check_audio(request.encoder_features, *config.encoder)
                              : check_text(request.encoder_ids, config));
  if (request.prompt_ids.empty()) {
    FOVEA_TRY(prompt, default_decoder_prompt(config));
    request.prompt_ids = std::move(prompt);
  }
  auto input = std::make_shared<EncoderInput>();
  input->ids = std::move(request.encoder_ids);
  input->features = std::move(request.encoder_features);
  const size_t rows =
      audio ? input->features.size() / static_cast<size_t>(config.encoder->mel_bins) / kFramesPerRow
            : input->ids.size();
  input->rows = static_cast<int>(rows);
  return std::shared_ptr<const EncoderInput>(std::move(input));
}

}  // namespace fovea
