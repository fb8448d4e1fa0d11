// Qwen2 and Qwen2.5 dense models (transformers' Qwen2ForCausalLM): Llama's decoder with biases of q, k and v.
// The configs contain a sliding window, which is off unless use_sliding_window is true.
#include "model/family.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  read_layer_types(fields, c, {.window = 4096});
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = true;
}

}  // namespace

const Family kQwen2Family = {
    .architectures = {"Qwen2ForCausalLM"},
    .model_type = "qwen2",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
