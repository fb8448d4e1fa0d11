// MiniCPM3 (MiniCPM3ForCausalLM): latent attention with dense MLPs, longrope, and factors that keep
// activations of one size in models of any width and depth.
#include <algorithm>
#include <cmath>

#include "model/family.h"
#include "model/granite.h"
#include "model/mla_fields.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  const int heads = fields.small("num_attention_heads", 1, 1 << 16);
  const int share = fields.small("hidden_size", 1, 1 << 20) / std::max(1, heads);
  read_mla_sizes(fields, c,
                 {.intermediate_size = 6400,
                  .q_rank = 768,
                  .kv_rank = 256,
                  .nope_dim = 64,
                  .rope_dim = 32,
                  .v_dim = std::max(1, share)});
}

/// A number that may be null for none.
std::optional<double> read_factor(Fields& fields, const char* key, double fallback) {
  if (fields.has(key) && !fields.find(key)) return std::nullopt;
  return fields.number(key, 1e-6, 1e6, fallback);
}

void configure(Fields& fields, ModelConfig& c) {
  read_mla_rope(fields, c, {});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.activation = read_activation(fields, "hidden_act", Activation::silu);
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", false);
  c.mlp_bias = fields.boolean("mlp_bias", false);
  c.embedding_scale = static_cast<float>(fields.number("scale_emb", 1e-6, 1e6, 12.0));
  GraniteSettings own;
  if (const auto depth = read_factor(fields, "scale_depth", 1.4))
    own.residual_scale = static_cast<float>(*depth / std::sqrt(static_cast<double>(c.num_layers)));
  if (const auto base = read_factor(fields, "dim_model_base", 256))
    own.logit_scale = static_cast<float>(*base / c.hidden_size);
  c.family = own;
}

std::unique_ptr<Model> read(const ModelConfig& config, WeightReader& reader) {
  const auto own = family_settings<GraniteSettings>(config);
  return make_decoder(config, read_decoder(config, reader),
                      {.residual = own.residual_scale, .logits = own.logit_scale});
}

}  // namespace

const Family kMiniCpm3Family = {
    .architectures = {"MiniCPM3ForCausalLM"},
    .model_type = "minicpm3",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
