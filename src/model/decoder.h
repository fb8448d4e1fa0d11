#pragma once
// The pre-norm decoder that Llama-like families share: x += attention(norm(x)); x += mlp(norm(x)).
#include <memory>
#include <optional>
#include <vector>

#include "model/layers.h"
#include "model/model.h"

namespace fovea {

struct DecoderLayer {
  AlignedArray<float> attention_input_norm;  ///< [hidden]
  AttentionBlock attention;
  AlignedArray<float> mlp_input_norm;  ///< [hidden]
  GatedMlp mlp;
};

struct DecoderWeights {
  PackedMatrix embedding;  ///< [vocab, hidden]
  std::vector<DecoderLayer> layers;
  AlignedArray<float> final_norm;       ///< [hidden]
  std::optional<PackedMatrix> lm_head;  ///< [vocab, hidden]; absent = the embedding (tied)
};

/// Reads the tensors by the names that Llama gave them and most families kept: model.embed_tokens,
/// model.layers.N.{input_layernorm,self_attn.*,post_attention_layernorm,mlp.*}, model.norm, and lm_head
/// unless tied. Biases and head norms as the config says.
DecoderWeights read_decoder(const ModelConfig& config, WeightReader& reader);

std::unique_ptr<Model> make_decoder(const ModelConfig& config, DecoderWeights weights);

/// Both: what most families name as Family::read.
std::unique_ptr<Model> read_decoder_model(const ModelConfig& config, WeightReader& reader);

}  // namespace fovea
