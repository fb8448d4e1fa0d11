#pragma once
// Encoder-decoder models (BART, Whisper): the encoder's output is projected once to cross keys and values of
// every decoder layer; the decoder reads these and its own keys in the paged cache.
#include <memory>
#include <optional>
#include <vector>

#include "model/audio_convolutions.h"
#include "model/config_fields.h"
#include "model/encoder_blocks.h"
#include "model/model.h"

namespace fovea {

struct EncoderDecoderWeights {
  std::optional<AudioConvolutions> audio;  ///< else the encoder reads tokens
  WeightMatrix embedding;                  ///< [vocab, hidden], shared by encoder and decoder
  WeightMatrix encoder_positions;          ///< [position_offset + encoder.max_position, hidden]
  WeightMatrix decoder_positions;          ///< [position_offset + max_position, hidden]
  BiasedNorm encoder_embedding_norm, decoder_embedding_norm;  ///< absent = none
  std::vector<EncoderLayer> encoder;
  std::vector<CrossDecoderLayer> decoder;
  BiasedNorm encoder_final_norm, decoder_final_norm;  ///< absent = none
  std::optional<WeightMatrix> lm_head;                ///< absent = the embedding (tied)
  AlignedArray<float> logit_bias;                     ///< [vocab]; empty = none
};

std::unique_ptr<Model> make_encoder_decoder(const ModelConfig& config, EncoderDecoderWeights weights);

/// vocab_size, d_model, and for encoder and decoder layers, attention heads and ffn_dim, by BART's and
/// Whisper's names. The caller reads the position counts.
void read_encoder_decoder_sizes(Fields& fields, ModelConfig& config);

/// The settings that both families' blocks share; activation_function and tie_word_embeddings.
void read_encoder_decoder_blocks(Fields& fields, ModelConfig& config);

/// Encoder and decoder layers, PREFIX + {encoder,decoder}.layers.N.
void read_encoder_decoder_layers(const std::string& prefix, const ModelConfig& config, bool key_bias,
                                 WeightReader& reader, EncoderDecoderWeights& weights);

}  // namespace fovea
