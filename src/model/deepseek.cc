// DeepSeek's models with latent attention and many experts: V2 and V2-Lite (transformers'
// DeepseekV2ForCausalLM), V3, R1, V3.1 and Kimi-K2 (DeepseekV3ForCausalLM), and GLM-4.7-Flash
// (Glm4MoeLiteForCausalLM); V3.2 (DeepseekV32ForCausalLM) and GLM-5 (GlmMoeDsaForCausalLM) with sparse
// attention.
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>

#include "model/family.h"
#include "model/mla_fields.h"
#include "model/moe_fields.h"

namespace fovea {
namespace {

/// What transformers assumes for keys that a config.json leaves out.
struct Defaults {
  const char *topk_method, *scoring;
  bool normalise;
  double routed_scale;
  int dense_layers;  ///< first_k_dense_replace
  int experts, experts_per_token, expert_size, shared_experts;
  int groups, top_groups;
};

/// The choice among groups of experts: n_group and topk_group; null = none.
void read_groups(Fields& fields, MoeConfig& moe, const Defaults& defaults) {
  const auto read = [&](const char* key, int absent, int null) {
    return fields.small(key, 1, 1 << 10, fields.has(key) ? null : absent);
  };
  moe.groups = read("n_group", defaults.groups, 1);
  moe.top_groups = read("topk_group", std::min(defaults.top_groups, moe.groups), moe.groups);
  if (moe.num_experts % moe.groups != 0)
    fields.refuse("n_group", "it must divide n_routed_experts = " + std::to_string(moe.num_experts));
  if (moe.top_groups > moe.groups)
    fields.refuse("topk_group", "it may be at most n_group = " + std::to_string(moe.groups));
  const int choices = moe.num_experts / moe.groups * moe.top_groups;
  if (moe.experts_per_token > choices)
    fields.refuse("num_experts_per_tok",
                  "it may be at most " + std::to_string(choices) + ", the experts of topk_group groups");
}

void read_router(Fields& fields, MoeConfig& moe, const Defaults& defaults) {
  const std::string method = fields.string("topk_method", defaults.topk_method);
  const std::string scoring = fields.string("scoring_func", defaults.scoring);
  if (scoring == "sigmoid")
    moe.router = MoeRouter::sigmoid_then_top;
  else if (scoring == "softmax")
    moe.router = MoeRouter::softmax_then_top;
  else
    fields.refuse("scoring_func", "sigmoid and softmax are supported", ErrorCode::unsupported);
  moe.renormalize = fields.boolean("norm_topk_prob", defaults.normalise) && moe.experts_per_token > 1;
  moe.routed_scale =
      static_cast<float>(fields.number("routed_scaling_factor", 1e-6, 1e6, defaults.routed_scale));
  if (method == "noaux_tc") {
    moe.choice_bias = true;
    moe.group_best = 2;
    read_groups(fields, moe, defaults);
  } else if (method == "group_limited_greedy") {
    read_groups(fields, moe, defaults);
  } else if (method != "greedy") {
    fields.refuse("topk_method", "greedy, group_limited_greedy and noaux_tc are supported",
                  ErrorCode::unsupported);
  }
  // DeepSeek's own code for V2 divides by the sum or multiplies by the factor, never both.
  if (method != "noaux_tc" && moe.renormalize) moe.routed_scale = 1.0f;
}

/// Layers with experts: from first_k_dense_replace on each moe_layer_freq-th one, or by mlp_layer_types.
void read_sparse_layers(Fields& fields, ModelConfig& c, const Defaults& defaults) {
  const nlohmann::json* types = fields.find("mlp_layer_types");
  const auto is = [](const nlohmann::json& type, std::string_view name) {
    return type.is_string() && type.get_ref<const std::string&>() == name;
  };
  const auto known = [&](const nlohmann::json& type) { return is(type, "dense") || is(type, "sparse"); };
  if (types &&
      (!types->is_array() || types->size() != c.layers.size() || !std::ranges::all_of(*types, known)))
    return fields.refuse("mlp_layer_types", "a list of num_hidden_layers = " + std::to_string(c.num_layers) +
                                                " strings is needed, each dense or sparse");
  const int first = fields.small("first_k_dense_replace", 0, 1 << 30, defaults.dense_layers);
  const int step = fields.small("moe_layer_freq", 1, 1 << 30, 1);
  for (int i = 0; i < c.num_layers; ++i) {
    const auto index = static_cast<size_t>(i);
    c.layers[index].moe = types ? is((*types)[index], "sparse") : i >= first && i % step == 0;
  }
}

void read_experts(Fields& fields, ModelConfig& c, const Defaults& defaults) {
  constexpr int kMostExperts = 1024;
  if (fields.has("n_routed_experts") && !fields.find("n_routed_experts")) return;  // null: dense layers only
  MoeConfig& moe = c.moe;
  moe.layout = MoeLayout::deepseek;
  moe.num_experts = fields.small("n_routed_experts", 1, kMostExperts, defaults.experts);
  moe.experts_per_token = fields.small("num_experts_per_tok", 1, kMostExperts, defaults.experts_per_token);
  if (moe.experts_per_token > moe.num_experts)
    fields.refuse("num_experts_per_tok",
                  "it may be at most n_routed_experts = " + std::to_string(moe.num_experts));
  moe.intermediate_size = fields.small("moe_intermediate_size", 1, 1 << 22, defaults.expert_size);
  const int shared = fields.has("n_shared_experts") ? 0 : defaults.shared_experts;
  moe.shared_intermediate_size = moe.intermediate_size * fields.small("n_shared_experts", 0, 64, shared);
  if (!fields.ok()) return;
  read_router(fields, moe, defaults);
  read_sparse_layers(fields, c, defaults);
}

void read_attention_v2(Fields& fields, ModelConfig& c) {
  read_mla_sizes(fields, c, {.intermediate_size = 11008});
}
void read_attention_v3(Fields& fields, ModelConfig& c) {
  read_mla_sizes(fields, c, {.intermediate_size = 18432});
}
void read_attention_glm(Fields& fields, ModelConfig& c) {
  read_mla_sizes(fields, c, {.intermediate_size = 10240, .q_rank = 768, .nope_dim = 192, .v_dim = 256});
}

/// Sparse attention. Indexers rotate by halves (V3.2), or by pairs (GLM-5).
void read_indexer(Fields& fields, ModelConfig& c, int heads, bool interleaved) {
  constexpr int kMostHeads = 1024, kMostElements = 1024;
  c.sparse_topk = fields.small("index_topk", 1, 1 << 30, 2048);
  c.sparse = true;
  IndexerConfig& indexer = c.indexer;
  indexer.heads = fields.small("index_n_heads", 1, kMostHeads, heads);
  indexer.dim = fields.small("index_head_dim", 1, kMostElements, 128);
  indexer.interleaved = fields.boolean("indexer_rope_interleave", interleaved);
  indexer.full.assign(static_cast<size_t>(std::max(c.num_layers, 0)), true);
  if (!fields.ok()) return;
  if (!std::has_single_bit(static_cast<unsigned>(indexer.dim)) || indexer.dim < c.mla.rope_dim)
    fields.refuse("index_head_dim",
                  "a power of two is needed, at least qk_rope_head_dim = " + std::to_string(c.mla.rope_dim));
  if (c.mla.q_rank == 0)
    fields.refuse("q_lora_rank", "an indexer's queries come from their latent, which has 1 element or more");
}

/// Which layers have an indexer, from indexer_types, index_topk_pattern ("FSSF"), or index_topk_freq and
/// index_skip_topk_offset; the others see the keys of the last one that has.
void read_shared_layers(Fields& fields, ModelConfig& c) {
  std::vector<bool>& full = c.indexer.full;
  const char* key = fields.find("indexer_types") ? "indexer_types" : "index_topk_pattern";
  const nlohmann::json* types = fields.find(key);
  if (!types) {
    const int step = fields.small("index_topk_freq", 0, 1 << 20, 1);
    const int skipped = fields.small("index_skip_topk_offset", 0, 1 << 20, 2);
    for (int i = 0; i < c.num_layers && fields.ok(); ++i)
      full[static_cast<size_t>(i)] = std::max(i - skipped + 1, 0) % std::max(step, 1) == 0;
    return;
  }
  const auto refuse = [&] {
    fields.refuse(key, "one entry for each of the num_hidden_layers = " + std::to_string(c.num_layers) +
                           " layers is needed, full (F) or shared (S), the first one full");
  };
  std::vector<bool> given;
  if (types->is_string()) {
    for (const char letter : types->get_ref<const std::string&>()) {
      if (letter != 'F' && letter != 'S') return refuse();
      given.push_back(letter == 'F');
    }
  } else if (types->is_array()) {
    for (const nlohmann::json& type : *types) {
      if (type != "full" && type != "shared") return refuse();
      given.push_back(type == "full");
    }
  }
  if (given.size() != full.size() || given.empty() || !given.front()) return refuse();
  full = std::move(given);
}

void read_attention_v32(Fields& fields, ModelConfig& c) {
  read_attention_v3(fields, c);
  read_indexer(fields, c, 64, false);
}
void read_attention_glm_dsa(Fields& fields, ModelConfig& c) {
  read_mla_sizes(fields, c, {.intermediate_size = 12288, .q_rank = 2048, .nope_dim = 192, .v_dim = 256});
  read_indexer(fields, c, 32, true);
  if (fields.ok()) read_shared_layers(fields, c);
}

void configure(Fields& fields, ModelConfig& c, const Defaults& defaults) {
  read_mla_rope(fields, c, {.interleaved = fields.boolean("rope_interleave", true)});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.mlp_bias = fields.boolean("mlp_bias", false);
  read_experts(fields, c, defaults);
  c.extra_layers = fields.small("num_nextn_predict_layers", 0, 1 << 10, 0);
}

void configure_v2(Fields& fields, ModelConfig& c) {
  configure(fields, c, {"greedy", "softmax", false, 1.0, 0, 64, 6, 1407, 2, 1, 1});
}
void configure_v3(Fields& fields, ModelConfig& c) {
  configure(fields, c, {"noaux_tc", "sigmoid", true, 2.5, 3, 256, 8, 2048, 1, 8, 4});
}
void configure_glm(Fields& fields, ModelConfig& c) {
  configure(fields, c, {"noaux_tc", "sigmoid", true, 1.8, 1, 64, 4, 1536, 1, 1, 1});
}

void configure_glm_dsa(Fields& fields, ModelConfig& c) {
  configure(fields, c, {"noaux_tc", "sigmoid", true, 2.5, 3, 256, 8, 2048, 1, 1, 1});
}

std::unique_ptr<Model> read(const ModelConfig& config, WeightReader& reader) {
  reader.refuse_unused();
  // Layers that predict further tokens follow the others.
  for (int i = 0; i < config.extra_layers; ++i)
    reader.ignore("model.layers." + std::to_string(config.num_layers + i) + ".");
  // Without sparse attention an indexer decides nothing, nor does one in a layer that shares another's
  // choice.
  for (int i = 0; config.sparse_topk > 0 && i < config.num_layers; ++i)
    if (!config.sparse || !config.indexer.full[static_cast<size_t>(i)])
      reader.ignore("model.layers." + std::to_string(i) + ".self_attn.indexer.");
  return read_decoder_model(config, reader);
}

}  // namespace

const Family kDeepseekV2Family = {
    .architectures = {"DeepseekV2ForCausalLM"},
    .model_type = "deepseek_v2",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_v2,
    .configure = configure_v2,
    .read = read,
};

const Family kDeepseekV3Family = {
    .architectures = {"DeepseekV3ForCausalLM"},
    .model_type = "deepseek_v3",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_v3,
    .configure = configure_v3,
    .read = read,
};

const Family kGlm4MoeLiteFamily = {
    .architectures = {"Glm4MoeLiteForCausalLM"},
    .model_type = "glm4_moe_lite",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_glm,
    .configure = configure_glm,
    .read = read,
};

const Family kDeepseekV32Family = {
    .architectures = {"DeepseekV32ForCausalLM"},
    .model_type = "deepseek_v32",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_v32,
    .configure = configure_v3,
    .read = read,
};

const Family kGlmMoeDsaFamily = {
    .architectures = {"GlmMoeDsaForCausalLM"},
    .model_type = "glm_moe_dsa",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_glm_dsa,
    .configure = configure_glm_dsa,
    .read = read,
};

}  // namespace fovea
