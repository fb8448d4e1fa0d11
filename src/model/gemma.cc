// Gemma 2 and the text models of Gemma 3 (transformers' Gemma2ForCausalLM, Gemma3ForCausalLM): norms that
// multiply by 1 + w around both blocks, embeddings times sqrt(hidden), a tanh GELU, and alternating
// sliding-window and full attention layers. Gemma 2 soft-caps scores and logits; Gemma 3 norms each head of q
// and k and uses different RoPE bases in sliding and full layers.
#include "model/gemma.h"

#include <cmath>

#include "model/family.h"

namespace fovea {
namespace {

void read_heads(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c, /*default_head_dim=*/256);
  c.attention_scale = 1.0 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-6, 1e6, 256.0));
  if (fields.boolean("use_bidirectional_attention", false))
    fields.refuse("use_bidirectional_attention", "this program generates text, which needs causal attention",
                  ErrorCode::unsupported);
}

void read_attention_2(Fields& fields, ModelConfig& c) {
  read_heads(fields, c);
  c.attention_softcap = read_softcap(fields, "attn_logit_softcapping", 50.0f);
  read_layer_types(fields, c, {.window = 4096, .pattern = 2});
}

void read_attention_3(Fields& fields, ModelConfig& c) {
  read_heads(fields, c);
  c.attention_softcap = read_softcap(fields, "attn_logit_softcapping", 0.0f);
  // The key's old and new names; with layer_types both are ignored.
  constexpr const char* kPattern = "sliding_window_pattern";
  const int older = fields.small("_sliding_window_pattern", 1, 10'000, 6);
  read_layer_types(fields, c, {.window = 4096, .pattern = fields.small(kPattern, 1, 10'000, older)});
}

void configure_both(Fields& fields, ModelConfig& c) {
  c.norm = NormKind::rms_plus_one;
  c.norm_placement = NormPlacement::sandwich;
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  const char* key = fields.find("hidden_activation") ? "hidden_activation" : "hidden_act";
  c.activation = read_activation(fields, key, Activation::gelu_tanh);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.embedding_scale = static_cast<float>(std::sqrt(c.hidden_size));
}

void configure_2(Fields& fields, ModelConfig& c) {
  configure_both(fields, c);
  read_rope(fields, c);
  c.family = GemmaSettings{read_softcap(fields, "final_logit_softcapping", 30.0f)};
}

void configure_3(Fields& fields, ModelConfig& c) {
  configure_both(fields, c);
  read_rope_by_layer_type(fields, c, /*full=*/{.theta = 1e6}, /*sliding=*/{.theta = 1e4});
  c.qk_norm = QkNorm::head;
  c.family = GemmaSettings{read_softcap(fields, "final_logit_softcapping", 0.0f)};
}

/// The scalar is rounded to the model's dtype: in bfloat16, sqrt(2304) is 48 and sqrt(1152) is 34.
std::unique_ptr<Model> read(const ModelConfig& config, WeightReader& reader) {
  ModelConfig rounded = config;
  rounded.embedding_scale = round_to(config.embedding_scale, config.dtype);
  return make_decoder(rounded, read_decoder(rounded, reader),
                      {.logit_softcap = family_settings<GemmaSettings>(config).logit_softcap});
}

}  // namespace

const Family kGemma2Family = {
    .architectures = {"Gemma2ForCausalLM"},
    .model_type = "gemma2",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_2,
    .configure = configure_2,
    .read = read,
};

const Family kGemma3Family = {
    .architectures = {"Gemma3ForCausalLM"},
    .model_type = "gemma3_text",
    .kind = ModelKind::decoder,
    .read_attention = read_attention_3,
    .configure = configure_3,
    .read = read,
};

}  // namespace fovea
