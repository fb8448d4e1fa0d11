#pragma once
// The decoder that Llama-like families share: each layer adds attention(norm(x)), then mlp(norm(x)) to the
// residual stream x; which norms there are and what is scaled or capped is up to the config.
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "model/layers.h"
#include "model/model.h"

namespace fovea {

/// x += attention_output_norm(attention(attention_input_norm(x))), the same for the MLP; a norm that the
/// config's placement lacks is empty and passes its input on.
struct DecoderLayer {
  Norm attention_input_norm, attention_output_norm;
  AttentionBlock attention;
  Norm mlp_input_norm, mlp_output_norm;
  MlpBlock mlp;
};

struct DecoderWeights {
  PackedMatrix embedding;  ///< [vocab, hidden]
  std::vector<DecoderLayer> layers;
  Norm final_norm;
  std::optional<PackedMatrix> lm_head;  ///< [vocab, hidden]; absent = the embedding (tied)
};

/// Where a family's tensors differ from Llama's.
struct DecoderTensors {
  std::string_view mlp = "mlp.";  ///< of dense layers
  Stored stored = Stored::apart;
};

/// Reads the tensors by the names that Llama gave them and most families kept: model.embed_tokens,
/// model.layers.N.{self_attn.*,mlp.*}, the layer's norms, model.norm, and lm_head unless tied. The norms are
/// input_layernorm and post_attention_layernorm (pre), post_attention_layernorm and
/// post_feedforward_layernorm (post), or these three and pre_feedforward_layernorm (sandwich). Biases, norms
/// of q and k, sinks and experts as the config says.
DecoderWeights read_decoder(const ModelConfig& config, WeightReader& reader,
                            const DecoderTensors& tensors = {});

std::unique_ptr<Model> make_decoder(const ModelConfig& config, DecoderWeights weights);

/// Both: what most families name as Family::read.
std::unique_ptr<Model> read_decoder_model(const ModelConfig& config, WeightReader& reader);

}  // namespace fovea
