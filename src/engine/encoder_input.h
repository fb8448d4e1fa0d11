#pragma once
// The encoder input of one request to an encoder-decoder model.
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/engine.h"
#include "model/config.h"

namespace fovea {

struct EncoderInput {
  std::vector<int32_t> ids;     ///< text; empty for audio
  std::vector<float> features;  ///< audio: log-mel [frames, mel_bins]; empty for text
  int rows = 0;                 ///< encoder output rows: one per token, or one per two frames
};

/// Moves the encoder input out of `request` and fills an empty prompt with the default decoder prompt. Null
/// for a model without an encoder. Errors: input of the wrong kind, empty, too long, or with ids or numbers
/// out of range.
Result<std::shared_ptr<const EncoderInput>> take_encoder_input(GenerateRequest& request,
                                                               const ModelConfig& config);

}  // namespace fovea
