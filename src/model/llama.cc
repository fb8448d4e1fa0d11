// Llama 2, 3, 3.1, 3.2, 3.3 and their fine-tunes (transformers' LlamaForCausalLM): RMSNorm, grouped-query
// attention with rotary positions (llama3 scaling from 3.1 on), gated SiLU MLP. Biases depend on the config.
#include "model/family.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.mlp_bias = fields.boolean("mlp_bias", false);
}

}  // namespace

const Family kLlamaFamily = {
    .architectures = {"LlamaForCausalLM"},
    .model_type = "llama",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
