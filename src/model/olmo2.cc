// OLMo 2 (transformers' Olmo2ForCausalLM): norms after attention and MLP instead of before them, and an
// RMSNorm over all heads of a row of q and of k.
#include "model/family.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.norm_placement = NormPlacement::post;
  c.qk_norm = QkNorm::row;
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
}

}  // namespace

const Family kOlmo2Family = {
    .architectures = {"Olmo2ForCausalLM"},
    .model_type = "olmo2",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
