// Mixtral (transformers' MixtralForCausalLM): Llama's decoder with experts in every layer, routed by a
// softmax over all experts; the weights of the top k are renormalised to sum to 1.
#include "model/family.h"
#include "model/moe_fields.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  read_layer_types(fields, c, {.slides = true});
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c, {.theta = 1e6});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  read_expert_counts(fields, c, /*default_top=*/2);
  c.moe.layout = MoeLayout::mixtral;
  c.moe.router = MoeRouter::softmax_then_top;
  c.moe.renormalize = true;
  c.moe.intermediate_size = c.intermediate_size;
  for (LayerConfig& layer : c.layers)
    layer.moe = true;
}

}  // namespace

const Family kMixtralFamily = {
    .architectures = {"MixtralForCausalLM"},
    .model_type = "mixtral",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
