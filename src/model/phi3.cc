// Phi-3, Phi-3.5 and Phi-4 including mini (transformers' Phi3ForCausalLM): Llama's decoder with stacked
// matrices, partial rotation (mini), longrope for long contexts, and a sliding window in all layers.
#include "model/family.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  read_layer_types(fields, c, {.slides = true});
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c, {.partial = true});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
}

std::unique_ptr<Model> read(const ModelConfig& config, WeightReader& reader) {
  return make_decoder(config, read_decoder(config, reader, {.stored = Stored::stacked}));
}

}  // namespace

const Family kPhi3Family = {
    .architectures = {"Phi3ForCausalLM"},
    .model_type = "phi3",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
