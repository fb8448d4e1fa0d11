// IBM Granite 3 dense models (transformers' GraniteForCausalLM): Llama's decoder with four multipliers: for
// the embedding, each block's output, the attention scores (instead of 1 / sqrt(head_dim)) and the logits.
#include "model/family.h"

namespace fovea {
namespace {

void configure(Fields& fields, ModelConfig& c) {
  constexpr double kSmallest = 1e-6, kLargest = 1e6;
  const auto multiplier = [&](const char* key) { return fields.number(key, kSmallest, kLargest, 1.0); };
  read_sizes(fields, c);
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.mlp_bias = fields.boolean("mlp_bias", false);
  c.embedding_scale = static_cast<float>(multiplier("embedding_multiplier"));
  c.residual_scale = static_cast<float>(multiplier("residual_multiplier"));
  c.attention_scale = multiplier("attention_multiplier");
  c.logit_scale = static_cast<float>(1.0 / multiplier("logits_scaling"));
}

}  // namespace

const Family kGraniteFamily = {
    .architectures = {"GraniteForCausalLM"},
    .model_type = "granite",
    .kind = ModelKind::decoder,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
