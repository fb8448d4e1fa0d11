// The text models of Llama 4 (transformers' Llama4ForCausalLM): most layers rotate q and k in adjacent pairs,
// norm them without a weight, and use chunked attention; every fourth has no rotation, full attention, and
// temperature scaling of queries by position. Some or all layers have experts.
#include "model/llama4.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "model/family.h"
#include "model/moe_fields.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

/// no_rope_layers has 1 for a layer that rotates; if absent or empty, all rotate except every
/// no_rope_layer_interval-th.
void read_rotating_layers(Fields& fields, ModelConfig& c) {
  const int interval = fields.small("no_rope_layer_interval", 1, 10'000, 4);
  const Json* list = fields.find("no_rope_layers");
  const bool given = list && !(list->is_array() && list->empty());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    bool rotates = (i + 1) % static_cast<size_t>(interval) != 0;
    if (given) {
      const bool fits =
          list->is_array() && list->size() == c.layers.size() && (list->at(i) == 0 || list->at(i) == 1);
      if (!fits)
        return fields.refuse(
            "no_rope_layers",
            "a list of num_hidden_layers = " + std::to_string(c.num_layers) + " numbers 0 or 1 is needed");
      rotates = list->at(i) == 1;
    }
    c.layers[i].rope = rotates ? 0 : -1;
  }
}

/// layer_types, or chunks in the layers that rotate.
void read_chunks(Fields& fields, ModelConfig& c) {
  const int chunk = fields.small("attention_chunk_size", 1, 1 << 30, 8192);
  if (fields.find("layer_types")) return read_layer_types(fields, c, {.chunk = chunk});
  for (LayerConfig& layer : c.layers)
    if (layer.rope >= 0) layer.chunk = chunk;
}

QueryTemperature read_temperature(Fields& fields) {
  constexpr const char* kKey = "attn_temperature_tuning";  // true, or 4 in the released models
  const Json* tuning = fields.find(kKey);
  const bool on = tuning && tuning->is_number_integer() ? fields.integer(kKey, 0, 1 << 30) != 0
                                                        : fields.boolean(kKey, true);
  QueryTemperature out;
  out.floor = fields.number("floor_scale", 1, 1e9, out.floor);
  out.scale = on ? fields.number("attn_scale", 0, 1e3, 0.1) : 0.0;
  return out;
}

/// moe_layers, or every interleave_moe_layer_step-th layer.
void read_expert_layers(Fields& fields, ModelConfig& c) {
  const int step = fields.small("interleave_moe_layer_step", 1, 10'000, 1);
  const Json* list = fields.find("moe_layers");
  if (list && !list->is_array()) return fields.refuse("moe_layers", "a list of layer numbers is needed");
  if (!list)
    for (size_t i = static_cast<size_t>(step) - 1; i < c.layers.size(); i += static_cast<size_t>(step))
      c.layers[i].moe = true;
  for (const Json& layer : list ? *list : Json::array()) {
    if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= c.layers.size())
      return fields.refuse("moe_layers",
                           "each must be a layer from 0 to " + std::to_string(c.num_layers - 1));
    c.layers[layer.get<size_t>()].moe = true;
  }
}

void read_experts(Fields& fields, ModelConfig& c) {
  read_expert_layers(fields, c);
  const int of_experts = c.intermediate_size;
  c.intermediate_size = fields.small("intermediate_size_mlp", 1, 1 << 22, 16384);
  if (std::ranges::none_of(c.layers, &LayerConfig::moe)) return;
  c.moe.intermediate_size = c.moe.shared_intermediate_size = of_experts;
  read_expert_counts(fields, c, /*default_top=*/1);
  c.moe.router = MoeRouter::sigmoid_top;
  c.moe.layout = MoeLayout::llama4;
}

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c, /*default_head_dim=*/128);
  if (!fields.ok()) return;
  read_rotating_layers(fields, c);
  read_chunks(fields, c);
}

void configure(Fields& fields, ModelConfig& c) {
  read_rope(fields, c, {.theta = 5e5, .interleaved = true});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  if (fields.boolean("use_qk_norm", true)) c.qk_norm = QkNorm::l2_after_rope;
  if (!fields.ok()) return;
  c.family = Llama4Settings{read_temperature(fields)};
  read_experts(fields, c);
}

std::unique_ptr<Model> read(const ModelConfig& config, WeightReader& reader) {
  DecoderWeights weights = read_decoder(config, reader, {.mlp = "feed_forward."});
  for (DecoderLayer& layer : weights.layers)
    layer.attention.temperature = family_settings<Llama4Settings>(config).temperature;
  return make_decoder(config, std::move(weights));
}

}  // namespace

const Family kLlama4Family = {
    .architectures = {"Llama4ForCausalLM"},
    .model_type = "llama4_text",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
