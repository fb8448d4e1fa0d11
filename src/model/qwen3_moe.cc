// Qwen3 mixture-of-experts models (transformers' Qwen3MoeForCausalLM): Qwen3's attention with an RMSNorm over
// each head of q and k, and experts in all layers or in some.
#include <nlohmann/json.hpp>

#include "model/family.h"
#include "model/moe_fields.h"

namespace fovea {
namespace {

/// A layer has experts if its number, from 1, is a multiple of decoder_sparse_step and mlp_only_layers does
/// not list it.
void read_sparse_layers(Fields& fields, ModelConfig& c) {
  const int step = fields.small("decoder_sparse_step", 1, 1 << 30, 1);
  for (int i = 0; i < c.num_layers; ++i)
    c.layers[static_cast<size_t>(i)].moe = (i + 1) % step == 0;
  const nlohmann::json* dense = fields.find("mlp_only_layers");
  if (!dense) return;
  const auto refuse = [&] {
    fields.refuse("mlp_only_layers", "a list of layers from 0 to " + std::to_string(c.num_layers - 1) +
                                         " (num_hidden_layers - 1) is needed");
  };
  if (!dense->is_array()) return refuse();
  for (const nlohmann::json& layer : *dense) {
    const bool known = layer.is_number_unsigned() && layer.get<uint64_t>() < c.layers.size();
    if (!known) return refuse();
    c.layers[layer.get<size_t>()].moe = false;
  }
}

/// One window for all layers: max_window_layers, which other Qwen models use, is ignored here.
void read_window(Fields& fields, ModelConfig& c) {
  if (!fields.boolean("use_sliding_window", false)) return;
  const int window = fields.small("sliding_window", 1, 1 << 30, 4096);
  for (LayerConfig& layer : c.layers)
    layer.window = window;
}

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  read_window(fields, c);
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c);
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.qk_norm = QkNorm::head;
  read_expert_counts(fields, c, /*default_top=*/8);
  c.moe.layout = MoeLayout::qwen3;
  c.moe.router = MoeRouter::softmax_then_top;
  c.moe.renormalize = fields.boolean("norm_topk_prob", false);
  c.moe.intermediate_size = fields.small("moe_intermediate_size", 1, 1 << 22, 768);
  read_sparse_layers(fields, c);
}

}  // namespace

const Family kQwen3MoeFamily = {
    .architectures = {"Qwen3MoeForCausalLM"},
    .model_type = "qwen3_moe",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
