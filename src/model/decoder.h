#pragma once
// The decoder shared by Llama-like families: each layer adds attention(norm(x)), then mlp(norm(x)) to the
// residual stream x. Norms follow the config.
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "model/layers.h"
#include "model/model.h"

namespace fovea {

/// x += attention_output_norm(attention(attention_input_norm(x))), the same for the MLP; norms absent from
/// the config's placement are empty (identity).
struct DecoderLayer {
  Norm attention_input_norm, attention_output_norm;
  AttentionBlock attention;
  std::optional<LatentBlock> latent;  ///< in place of `attention`, if the config has latent attention
  Norm mlp_input_norm, mlp_output_norm;
  MlpBlock mlp;
  std::optional<MoeBlock> shortcut;  ///< of LayerConfig::shortcut
};

/// The input of a draft head: the token after a row, and the state of the row (ForwardInput::states).
struct DraftInput {
  /// EAGLE-3: the residual stream is the state alone, and the attention's input [embedding, state], both
  /// normed. Otherwise the residual stream is fc of [embedding, state].
  bool joins_in_attention = false;
  /// EAGLE-3: the residual stream is the state after its norm.
  bool norm_before_residual = false;
  Norm embedding_norm, state_norm;  ///< empty = none
  /// [hidden, 2 * hidden]; of EAGLE-3 [hidden, states_width], for states that are not of this width already.
  Linear fc;
  Norm fc_norm;                  ///< EAGLE-3: of all that fc reads; empty = none
  std::vector<Norm> part_norms;  ///< EAGLE-3: of each of the states that fc reads; empty = none
};

struct DecoderWeights {
  WeightMatrix embedding;  ///< [vocab, hidden]
  std::vector<DecoderLayer> layers;
  Norm final_norm;                      ///< empty: none (EAGLE-1)
  std::optional<WeightMatrix> lm_head;  ///< [vocab, hidden]; absent = the embedding (tied)
  std::optional<DraftInput> draft;      ///< a draft head
  /// Draft heads: the model's, in place of those above, which are empty then; null = its own.
  const LinearWeight *shared_embedding = nullptr, *shared_head = nullptr;
};

/// How a family's tensor names differ from Llama's.
struct DecoderTensors {
  std::string_view mlp = "mlp.";  ///< of dense layers
  Stored stored = Stored::apart;
};

/// Reads the tensors by Llama's names, which most families use: model.embed_tokens,
/// model.layers.N.{self_attn.*,mlp.*}, the layer's norms, model.norm, and lm_head unless tied. The norms are
/// input_layernorm and post_attention_layernorm (pre), post_attention_layernorm and
/// post_feedforward_layernorm (post), or these three and pre_feedforward_layernorm (sandwich). Biases, q and
/// k norms, sinks and experts follow the config.
DecoderWeights read_decoder(const ModelConfig& config, WeightReader& reader,
                            const DecoderTensors& tensors = {});

/// Factors that only some families have; the defaults change nothing.
struct DecoderScales {
  float residual = 1.0f;       ///< multiplies a block's output
  float logits = 1.0f;         ///< multiplies the logits
  float logit_softcap = 0.0f;  ///< then cap * tanh(logit / cap); 0 = off
};

std::unique_ptr<Model> make_decoder(const ModelConfig& config, DecoderWeights weights,
                                    const DecoderScales& scales = {});

/// read_decoder() and make_decoder(): Family::read of most families.
std::unique_ptr<Model> read_decoder_model(const ModelConfig& config, WeightReader& reader);

}  // namespace fovea
