#pragma once
// What the encoder of an encoder-decoder model reads for one request.
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/engine.h"
#include "model/config.h"

namespace fovea {

struct EncoderInput {
  std::vector<int32_t> ids;     ///< text; empty for audio
  std::vector<float> features;  ///< audio: log-mel [frames, mel_bins]; empty for text
  int rows = 0;                 ///< that the encoder makes of it: tokens, or every second frame
};

/// Moves the encoder's input out of `request`, and gives an empty prompt its start token. Null for a model
/// without an encoder. Errors: input of the wrong kind, empty, too long, or with ids or numbers out of range.
Result<std::shared_ptr<const EncoderInput>> take_encoder_input(GenerateRequest& request,
                                                               const ModelConfig& config);

}  // namespace fovea
