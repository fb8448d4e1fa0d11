// gpt-oss (transformers' GptOssForCausalLM): attention with biases, a learned sink logit per head, a sliding
// window in every other layer, and YaRN; experts with a clamped activation, in bfloat16 or MXFP4.
#include "model/family.h"
#include "model/moe_fields.h"

namespace fovea {
namespace {

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c, /*default_head_dim=*/64);
  c.sinks = true;
  read_layer_types(fields, c, {.window = 128, .pattern = 2});
}

void configure(Fields& fields, ModelConfig& c) {
  constexpr double kAlpha = 1.702;  // clamped_swiglu's
  if (!fields.find("rope_parameters") && !fields.find("rope_scaling"))
    fields.refuse("rope_parameters", "gpt-oss needs it (or rope_scaling): positions are scaled by YaRN");
  read_rope(fields, c, {.theta = 150000.0});
  c.norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-5));
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.qkv_bias = c.o_bias = fields.boolean("attention_bias", true);
  read_expert_counts(fields, c, /*default_top=*/4);
  c.moe.layout = MoeLayout::gpt_oss;
  c.moe.router = MoeRouter::top_then_softmax;
  c.moe.intermediate_size = c.intermediate_size;
  c.moe.swiglu_limit = static_cast<float>(fields.number("swiglu_limit", 1e-3, 1e6, 7.0));
  if (fields.number("swiglu_alpha", 0, 1e6, kAlpha) != kAlpha)
    fields.refuse("swiglu_alpha", "only 1.702 is supported", ErrorCode::unsupported);
  if (read_activation(fields, "hidden_act", Activation::silu) != Activation::silu)
    fields.refuse("hidden_act", "gpt-oss's experts have silu only", ErrorCode::unsupported);
  read_mxfp4(fields, c);
  for (LayerConfig& layer : c.layers)
    layer.moe = true;
}

}  // namespace

const Family kGptOssFamily = {
    .architectures = {"GptOssForCausalLM"},
    .model_type = "gpt_oss",
    .kind = ModelKind::decoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_decoder_model,
};

}  // namespace fovea
