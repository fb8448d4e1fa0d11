// IBM Granite 3 dense models (transformers' GraniteForCausalLM): Llama's decoder with four multipliers: for
// the embedding, each block's output, the attention scores (instead of 1 / sqrt(head_dim)) and the logits.
#include "model/granite.h"

#include "model/family.h"

namespace fovea {
namespace {

double read_multiplier(Fields& fields, const char* key) {
  return fields.number(key, 1e-6, 1e6, 1.0);
}

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  c.attention_scale = read_multiplier(fields, "attention_multiplier");
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.mlp_bias = fields.boolean("mlp_bias", false);
  c.embedding_scale = static_cast<float>(read_multiplier(fields, "embedding_multiplier"));
  GraniteSettings own;
  own.residual_scale = static_cast<float>(read_multiplier(fields, "residual_multiplier"));
  own.logit_scale = static_cast<float>(1.0 / read_multiplier(fields, "logits_scaling"));
  c.family = own;
}

std::unique_ptr<Model> read(const ModelConfig& config, WeightReader& reader) {
  const auto own = family_settings<GraniteSettings>(config);
  return make_decoder(config, read_decoder(config, reader),
                      {.residual = own.residual_scale, .logits = own.logit_scale});
}

}  // namespace

const Family kGraniteFamily = {
    .architectures = {"GraniteForCausalLM"},
    .model_type = "granite",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
