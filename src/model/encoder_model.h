#pragma once
// Encoder-only models (BERT, RoBERTa): token ids in, a hidden state of every token out.
#include <memory>
#include <vector>

#include "model/encoder_blocks.h"
#include "model/model.h"

namespace fovea {

struct EncoderModelWeights {
  PackedMatrix words;      ///< [vocab, hidden]
  PackedMatrix positions;  ///< [position_offset + max_position, hidden]
  PackedMatrix types;      ///< [token_types, hidden]; empty = none
  BiasedNorm embedding_norm;
  std::vector<EncoderLayer> layers;
};

std::unique_ptr<Model> make_encoder_model(const ModelConfig& config, EncoderModelWeights weights);

}  // namespace fovea
