// Mistral 7B, Nemo, Small and their fine-tunes (transformers' MistralForCausalLM): Llama's decoder; a sliding
// window, if any, applies to every layer (7B v0.1; later models have null).
#include "model/family.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  read_layer_types(fields, c, {.slides = true, .window = 4096});
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
}

}  // namespace

const Family kMistralFamily = {
    .architectures = {"MistralForCausalLM"},
    .model_type = "mistral",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
