#pragma once
// An encoder-decoder model (BART, Whisper) on a device: its weights as the operations read them, and its two
// passes as lists of operations.
#include <array>
#include <vector>

#include "model/encoder_decoder.h"
#include "model/placed_blocks.h"

namespace fovea {

struct PlacedCrossDecoderLayer {
  PlacedSelfAttention attention;
  PlacedCrossAttention cross;
  PlacedFeedForward mlp;
};

struct PlacedEncoderDecoder {
  /// Whisper's; empty = the encoder reads tokens. The second reads [3, hidden] inputs.
  LinearWeight first_convolution, second_convolution;
  LinearWeight embedding, head;                       ///< head with the logits' bias
  LinearWeight encoder_positions, decoder_positions;  ///< row 0 is position 0
  NormWeight encoder_embedding_norm, decoder_embedding_norm, encoder_final_norm, decoder_final_norm;
  std::vector<PlacedEncoderLayer> encoder;
  std::vector<PlacedCrossDecoderLayer> decoder;
};

/// The operations have a packed_format().
PlacedEncoderDecoder place(const ModelConfig& config, const EncoderDecoderWeights& weights,
                           WeightPlacement& placement);

struct EncoderDecoderShape {
  BlockShape encoder, decoder;
  float embedding_scale = 1.0f;
  int64_t max_encoder_rows = 0, max_tokens = 0, max_logit_rows = 0;
};

/// Inputs of the encoder on the device, T rows.
struct EncoderDecoderInput {
  Tensor ids;      ///< i32 [T]; empty for audio
  Tensor windows;  ///< audio: f32 [2 T, 3 * mel_bins], the frames under the first convolution
  /// Audio: i32 [T] each, rows of its output (2 T = a row of zeros) under the second.
  std::array<Tensor, AudioConvolutions::kWidth> taps;
  Tensor positions;  ///< i32 [T]
  Tensor slots;      ///< i64 [T] of the cross keys and values
  StepAttention* attention = nullptr;
  KvCache* kv = nullptr;
};

/// Queues the encoder and writes the cross keys and values. Returns the hidden states, f32 [T, hidden], valid
/// until the arena is used again.
Tensor encode_cross(const EncoderDecoderShape& shape, const PlacedEncoderDecoder& weights,
                    const EncoderDecoderInput& input, Arena& arena, OpQueue& queue);

/// Queues one step of the decoder; logits f32 [R, vocab].
void cross_decoder_forward(const EncoderDecoderShape& shape, const PlacedEncoderDecoder& weights,
                           const StepTensors& step, const Tensor& logits, Arena& arena, OpQueue& queue);

}  // namespace fovea
