// LongCat-Flash (transformers' LongcatFlashForCausalLM): each layer has two blocks of latent attention with a
// dense MLP each, and experts beside the first MLP whose output joins after the second ("shortcut"). Some of
// the router's choices are no experts: their output is their input.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "model/family.h"
#include "model/mla_fields.h"

namespace fovea {
namespace {

/// The factor of a normed latent: sqrt(hidden_size / rank), unless `key` is false.
float latent_scale(Fields& fields, const char* key, const ModelConfig& c, int rank) {
  if (!fields.boolean(key, true) || rank == 0) return 1.0f;
  return static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size) / rank));
}

void read_attention(Fields& fields, ModelConfig& c) {
  read_mla_sizes(fields, c,
                 {.intermediate_size = 12288,
                  .intermediate_key = "ffn_hidden_size",
                  .layers_key = "num_layers",
                  .blocks = 2});
  if (!fields.ok()) return;
  if (c.mla.q_rank == 0)
    fields.refuse("q_lora_rank",
                  "this architecture's queries come from a latent, which has 1 element or more");
  c.mla.q_scale = latent_scale(fields, "mla_scale_q_lora", c, c.mla.q_rank);
  c.mla.kv_scale = latent_scale(fields, "mla_scale_kv_lora", c, c.mla.kv_rank);
}

void read_experts(Fields& fields, ModelConfig& c) {
  constexpr int kMostExperts = 1024;  // of them, and with those that return their input
  MoeConfig& moe = c.moe;
  moe.layout = MoeLayout::longcat;
  moe.router = MoeRouter::softmax_then_top;
  moe.renormalize = false;
  moe.choice_bias = true;
  moe.num_experts = fields.small("n_routed_experts", 1, kMostExperts, 512);
  if (!fields.ok()) return;
  moe.identity_experts = fields.small("zero_expert_num", 0, kMostExperts - moe.num_experts,
                                      std::min(256, kMostExperts - moe.num_experts));
  if (moe.identity_experts > 0 && fields.string("zero_expert_type", "identity") != "identity")
    fields.refuse("zero_expert_type", "only identity is supported", ErrorCode::unsupported);
  const char* top = fields.find("moe_topk") ? "moe_topk" : "num_experts_per_tok";
  moe.experts_per_token = fields.small(top, 1, kMostExperts, 12);
  if (moe.experts_per_token > moe.choices())
    fields.refuse(top,
                  "it may be at most n_routed_experts + zero_expert_num = " + std::to_string(moe.choices()));
  moe.intermediate_size = fields.small("expert_ffn_hidden_size", 1, 1 << 22, 2048);
  moe.routed_scale = static_cast<float>(fields.number("routed_scaling_factor", 1e-6, 1e6, 6.0));
  for (const char* key : {"router_bias", "norm_topk_prob"})
    if (fields.boolean(key, false))
      fields.refuse(key, "only false is supported by this architecture", ErrorCode::unsupported);
  for (size_t i = 0; i < c.layers.size(); i += 2)
    c.layers[i].shortcut = true;
}

void configure(Fields& fields, ModelConfig& c) {
  read_mla_rope(fields, c, {.theta = 1e7, .interleaved = true});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  read_experts(fields, c);
}

std::unique_ptr<Model> read(const ModelConfig& c, WeightReader& reader) {
  reader.refuse_unused();
  reader.ignore("model.mtp.");  // the layer that predicts further tokens
  DecoderWeights weights;
  weights.embedding = reader.matrix("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  for (int i = 0; i < c.num_layers && reader.status(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i / 2) + ".", block = std::to_string(i % 2);
    DecoderLayer& layer = weights.layers.emplace_back();
    layer.attention_input_norm = read_norm(prefix + "input_layernorm." + block, c.hidden_size, c, reader);
    layer.latent = read_latent(prefix + "self_attn." + block + ".", c, reader);
    layer.mlp_input_norm = read_norm(prefix + "post_attention_layernorm." + block, c.hidden_size, c, reader);
    if (c.layers[static_cast<size_t>(i)].shortcut) {
      layer.shortcut = read_moe(prefix, c, reader);
      // transformers stores gates of experts that return their input, and does not use them.
      for (int e = c.moe.num_experts; e < c.moe.choices(); ++e)
        reader.ignore(prefix + "mlp.experts." + std::to_string(e) + ".");
    }
    layer.mlp = read_gated_mlp(prefix + "mlps." + block + ".", c, reader);
  }
  weights.final_norm = read_norm("model.norm", c.hidden_size, c, reader);
  if (!c.tie_word_embeddings) weights.lm_head = reader.matrix("lm_head.weight", c.vocab_size, c.hidden_size);
  return make_decoder(c, std::move(weights));
}

}  // namespace

const Family kLongcatFlashFamily = {
    .architectures = {"LongcatFlashForCausalLM"},
    .model_type = "longcat_flash",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
