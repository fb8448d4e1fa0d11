// Qwen3 dense models (transformers' Qwen3ForCausalLM): Llama's decoder with an RMSNorm over each head of q
// and k before the rotation, and an explicit head size (128 by default).
#include "model/family.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c, /*default_head_dim=*/128);
  read_layer_types(fields, c, {.window = 4096});
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.qk_norm = QkNorm::head;
}

}  // namespace

const Family kQwen3Family = {
    .architectures = {"Qwen3ForCausalLM"},
    .model_type = "qwen3",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
