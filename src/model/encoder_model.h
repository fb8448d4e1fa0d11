#pragma once
// Encoder-only models (BERT, RoBERTa): token ids in, a hidden state of every token out.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/encoder_blocks.h"
#include "model/model.h"

namespace fovea {

struct EncoderModelWeights {
  WeightMatrix words;      ///< [vocab, hidden]
  WeightMatrix positions;  ///< [position_offset + max_position, hidden]
  WeightMatrix types;      ///< [token_types, hidden]; empty = none
  BiasedNorm embedding_norm;
  std::vector<EncoderLayer> layers;
};

/// Tokens equal to `padding_id`, if the model has one, are not counted as positions: all use the position row
/// before config.position_offset, which is then at least 1.
std::unique_ptr<Model> make_encoder_model(const ModelConfig& config, EncoderModelWeights weights,
                                          std::optional<int32_t> padding_id = {});

}  // namespace fovea
