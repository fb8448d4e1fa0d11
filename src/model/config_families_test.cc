// config.json of the dense families: both transformers formats give the same result, absent keys get
// transformers' defaults, and errors for out-of-range or unknown settings name key and value.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config.h"
#include "model/gemma.h"
#include "model/granite.h"
#include "model/llama4.h"

namespace fovea {
namespace {

using Json = nlohmann::ordered_json;

Json base(const std::string& architecture, const std::string& patch = "{}") {
  Json config{{"architectures", {architecture}}, {"vocab_size", 128},      {"hidden_size", 64},
              {"intermediate_size", 96},         {"num_hidden_layers", 4}, {"num_attention_heads", 4},
              {"num_key_value_heads", 2},        {"head_dim", 16},         {"max_position_embeddings", 512}};
  config.update(Json::parse(patch));  // keeps null
  return config;
}

ModelConfig good(const Json& config) {
  auto result = parse_model_config(config.dump(), "", "/m");
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : ModelConfig{};
}

std::vector<int> windows(const ModelConfig& c) {
  std::vector<int> out;
  for (const LayerConfig& layer : c.layers)
    out.push_back(layer.window);
  return out;
}
std::vector<int> chunks(const ModelConfig& c) {
  std::vector<int> out;
  for (const LayerConfig& layer : c.layers)
    out.push_back(layer.chunk);
  return out;
}
std::vector<int> ropes(const ModelConfig& c) {
  std::vector<int> out;
  for (const LayerConfig& layer : c.layers)
    out.push_back(layer.rope);
  return out;
}
std::vector<int> expert_layers(const ModelConfig& c) {
  std::vector<int> out;
  for (const LayerConfig& layer : c.layers)
    out.push_back(layer.moe);
  return out;
}
using Ints = std::vector<int>;

TEST(ConfigFamilies, Qwen2HasBiasesAndAWindowOnRequest) {
  const ModelConfig c = good(base("Qwen2ForCausalLM", R"({"sliding_window":8,"max_window_layers":1})"));
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias || c.mlp_bias);
  EXPECT_EQ(windows(c), (Ints{0, 0, 0, 0}));
  const auto on = [](const char* rest) {
    return windows(
        good(base("Qwen2ForCausalLM", R"({"use_sliding_window":true,)" + std::string(rest) + "}")));
  };
  EXPECT_EQ(on(R"("sliding_window":8,"max_window_layers":1)"), (Ints{0, 8, 8, 8}));
  EXPECT_EQ(on(R"("max_window_layers":3)"), (Ints{0, 0, 0, 4096}));
  EXPECT_EQ(on(R"("sliding_window":8)"), (Ints{0, 0, 0, 0}));  // from layer 28 on
  EXPECT_EQ(on(R"("sliding_window":null,"max_window_layers":1)"), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(on(R"("sliding_window":8,"max_window_layers":1,"layer_types":["sliding_attention",
      "full_attention","full_attention","full_attention"])"),
            (Ints{8, 0, 0, 0}));
}

TEST(ConfigFamilies, MistralSlidesEverywhereOrNowhere) {
  EXPECT_EQ(windows(good(base("MistralForCausalLM", R"({"sliding_window":8})"))), (Ints{8, 8, 8, 8}));
  EXPECT_EQ(windows(good(base("MistralForCausalLM", R"({"sliding_window":null})"))), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(windows(good(base("MistralForCausalLM"))), (Ints{4096, 4096, 4096, 4096}));
}

TEST(ConfigFamilies, Gemma2) {
  const ModelConfig c = good(base("Gemma2ForCausalLM", R"({"head_dim":null,"sliding_window":8,
      "query_pre_attn_scalar":144,"hidden_act":"gelu","hidden_activation":"gelu_pytorch_tanh"})"));
  EXPECT_EQ(c.head_dim, 16);  // null: hidden / heads
  EXPECT_EQ(windows(c), (Ints{8, 0, 8, 0}));
  EXPECT_EQ(c.norm, NormKind::rms_plus_one);
  EXPECT_EQ(c.norm_placement, NormPlacement::sandwich);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_DOUBLE_EQ(c.attention_scale, 1.0 / 12);
  EXPECT_EQ(c.embedding_scale, 8.0f);
  EXPECT_EQ(c.attention_softcap, 50.0f);
  EXPECT_EQ(family_settings<GemmaSettings>(c).logit_softcap, 30.0f);
  EXPECT_TRUE(c.tie_word_embeddings);
  Json bare = base("Gemma2ForCausalLM", R"({"attn_logit_softcapping":null,"final_logit_softcapping":12})");
  bare.erase("head_dim");
  const ModelConfig defaults = good(bare);
  EXPECT_EQ(defaults.head_dim, 256);
  EXPECT_EQ(windows(defaults), (Ints{4096, 0, 4096, 0}));
  EXPECT_EQ(defaults.attention_softcap, 0.0f);
  EXPECT_EQ(family_settings<GemmaSettings>(defaults).logit_softcap, 12.0f);
}

TEST(ConfigFamilies, Gemma3InBothGenerations) {
  const ModelConfig v4 = good(base("Gemma3ForCausalLM", R"({"sliding_window":8,"sliding_window_pattern":3,
      "_sliding_window_pattern":2,"rope_theta":2e6,"rope_local_base_freq":20000,
      "rope_scaling":{"rope_type":"linear","factor":8}})"));
  const ModelConfig v5 = good(base("Gemma3ForCausalLM", R"({"model_type":"gemma3_text","sliding_window":8,
      "layer_types":["sliding_attention","sliding_attention","full_attention","sliding_attention"],
      "rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":2e6},
      "sliding_attention":{"rope_type":"default","rope_theta":20000}}})"));
  for (const ModelConfig& c : {v4, v5}) {
    EXPECT_EQ(windows(c), (Ints{8, 8, 0, 8}));
    EXPECT_EQ(ropes(c), (Ints{1, 1, 0, 1}));
    ASSERT_EQ(c.ropes.size(), 2u);
    EXPECT_EQ(c.ropes[0].theta, 2e6);
    EXPECT_EQ(c.ropes[0].scaling, RopeScaling::linear);
    EXPECT_EQ(c.ropes[0].factor, 8.0);
    EXPECT_EQ(c.ropes[1].theta, 20000.0);
    EXPECT_EQ(c.ropes[1].scaling, RopeScaling::none);
    EXPECT_EQ(c.qk_norm, QkNorm::head);
    EXPECT_EQ(c.attention_softcap, 0.0f);
    EXPECT_EQ(family_settings<GemmaSettings>(c).logit_softcap, 0.0f);
    EXPECT_TRUE(c.tie_word_embeddings);
  }
  const ModelConfig defaults = good(base("Gemma3ForCausalLM", R"({"num_hidden_layers":7})"));
  EXPECT_EQ(windows(defaults), (Ints{4096, 4096, 4096, 4096, 4096, 0, 4096}));
  EXPECT_EQ(defaults.ropes[0].theta, 1e6);
  EXPECT_EQ(defaults.ropes[1].theta, 1e4);
  Json bare = base("", R"({"model_type":"gemma3_text"})");
  bare.erase("architectures");
  EXPECT_EQ(good(bare).architecture, "Gemma3ForCausalLM");
}

TEST(ConfigFamilies, Olmo2) {
  const ModelConfig c = good(base("Olmo2ForCausalLM"));
  EXPECT_EQ(c.norm_placement, NormPlacement::post);
  EXPECT_EQ(c.qk_norm, QkNorm::row);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
  EXPECT_FALSE(c.tie_word_embeddings);
}

TEST(ConfigFamilies, GraniteMultiplies) {
  const ModelConfig c = good(base("GraniteForCausalLM", R"({"embedding_multiplier":12.0,
      "residual_multiplier":0.22,"attention_multiplier":0.015625,"logits_scaling":8})"));
  EXPECT_EQ(c.embedding_scale, 12.0f);
  EXPECT_EQ(family_settings<GraniteSettings>(c).residual_scale, 0.22f);
  EXPECT_EQ(c.attention_scale, 0.015625);
  EXPECT_EQ(family_settings<GraniteSettings>(c).logit_scale, 0.125f);
  const ModelConfig defaults = good(base("GraniteForCausalLM"));
  EXPECT_EQ(defaults.attention_scale, 1.0);  // not 1 / sqrt(head_dim)
  EXPECT_EQ(family_settings<GraniteSettings>(defaults).logit_scale, 1.0f);
}

TEST(ConfigFamilies, SettingsOfAnotherFamilyAreDefaults) {
  const ModelConfig granite = good(base("GraniteForCausalLM", R"({"residual_multiplier":0.5})"));
  EXPECT_EQ(family_settings<GraniteSettings>(granite).residual_scale, 0.5f);
  EXPECT_EQ(family_settings<GemmaSettings>(granite).logit_softcap, 0.0f);
  const ModelConfig llama = good(base("LlamaForCausalLM"));
  EXPECT_FALSE(llama.family.has_value());
  EXPECT_EQ(family_settings<GraniteSettings>(llama).residual_scale, 1.0f);
  EXPECT_EQ(family_settings<Llama4Settings>(llama).temperature.scale, 0.0);
}

TEST(ConfigFamilies, Phi3InBothGenerations) {
  const char* factors = R"("short_factor":[1,1,1,1.5],"long_factor":[1,2,3,4])";
  const ModelConfig v4 =
      good(base("Phi3ForCausalLM", R"({"partial_rotary_factor":0.5,"original_max_position_embeddings":64,
      "sliding_window":100,"rope_scaling":{"type":"su",)" +
                                       std::string(factors) + "}}"));
  const ModelConfig v5 =
      good(base("Phi3ForCausalLM", R"({"original_max_position_embeddings":64,"sliding_window":100,
      "rope_parameters":{"rope_type":"longrope","rope_theta":10000,"partial_rotary_factor":0.5,
      "original_max_position_embeddings":64,)" +
                                       std::string(factors) + "}}"));
  for (const ModelConfig& c : {v4, v5}) {
    const RopeConfig& rope = c.ropes[0];
    EXPECT_EQ(rope.scaling, RopeScaling::longrope);
    EXPECT_EQ(rope.rotary_dim, 8);
    EXPECT_EQ(rope.original_max_position, 64);
    EXPECT_EQ(rope.short_divisors, (std::vector<double>{1, 1, 1, 1.5}));
    EXPECT_EQ(rope.long_divisors, (std::vector<double>{1, 2, 3, 4}));
    EXPECT_DOUBLE_EQ(rope.attention_factor, std::sqrt(1 + std::log(8.0) / std::log(64.0)));
    EXPECT_EQ(windows(c), (Ints{100, 100, 100, 100}));
    EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
    // Long factors only for a maximum length beyond the original context.
    EXPECT_TRUE(rope.long_context);
    ModelConfig fitted = c;
    fit_to_length(fitted, 64);
    EXPECT_FALSE(fitted.ropes[0].long_context);
    fit_to_length(fitted, 65);
    EXPECT_TRUE(fitted.ropes[0].long_context);
  }
  EXPECT_EQ(windows(good(base("Phi3ForCausalLM"))), (Ints{0, 0, 0, 0}));
}

TEST(ConfigFamilies, Llama4InBothGenerations) {
  const ModelConfig v4 = good(base("Llama4ForCausalLM", R"({"attention_chunk_size":8,"no_rope_layers":[],
      "attn_temperature_tuning":4,"interleave_moe_layer_step":2,"num_local_experts":6,"num_experts_per_tok":2,
      "intermediate_size_mlp":80,"rope_theta":500000})"));
  const ModelConfig v5 = good(base("Llama4ForCausalLM", R"({"attention_chunk_size":8,
      "no_rope_layers":[1,1,1,0],"moe_layers":[3,1],"layer_types":["chunked_attention","chunked_attention",
      "chunked_attention","full_attention"],"attn_temperature_tuning":true,"num_local_experts":6,
      "num_experts_per_tok":2,"intermediate_size_mlp":80,
      "rope_parameters":{"rope_type":"default","rope_theta":500000}})"));
  for (const ModelConfig& c : {v4, v5}) {
    EXPECT_EQ(chunks(c), (Ints{8, 8, 8, 0}));
    EXPECT_EQ(ropes(c), (Ints{0, 0, 0, -1}));
    EXPECT_EQ(expert_layers(c), (Ints{0, 1, 0, 1}));
    EXPECT_EQ(c.intermediate_size, 80);
    EXPECT_EQ(c.moe.intermediate_size, 96);
    EXPECT_EQ(c.moe.shared_intermediate_size, 96);
    EXPECT_EQ(c.moe.num_experts, 6);
    EXPECT_EQ(c.moe.experts_per_token, 2);
    EXPECT_TRUE(c.ropes[0].interleaved);
    EXPECT_EQ(c.ropes[0].theta, 5e5);
    EXPECT_EQ(c.qk_norm, QkNorm::l2_after_rope);
    const QueryTemperature temperature = family_settings<Llama4Settings>(c).temperature;
    EXPECT_DOUBLE_EQ(temperature.scale, 0.1);
    EXPECT_DOUBLE_EQ(temperature.floor, 8192.0);
  }
  const ModelConfig off = good(base("Llama4ForCausalLM", R"({"attn_temperature_tuning":false,
      "use_qk_norm":false,"moe_layers":[],"no_rope_layer_interval":2})"));
  EXPECT_EQ(family_settings<Llama4Settings>(off).temperature.scale, 0.0);
  EXPECT_EQ(off.qk_norm, QkNorm::none);
  EXPECT_EQ(expert_layers(off), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(ropes(off), (Ints{0, -1, 0, -1}));
  EXPECT_EQ(chunks(off), (Ints{8192, 0, 8192, 0}));
}

TEST(ConfigFamilies, LongcatsLayersAreTwoOfOurs) {
  const ModelConfig c = good(base("LongcatFlashForCausalLM", R"({"num_layers":2,"ffn_hidden_size":80})"));
  EXPECT_EQ(c.num_layers, 4);  // num_hidden_layers, the base's 4, is transformers' name for the same
  EXPECT_EQ(c.intermediate_size, 80);
  for (size_t i = 0; i < c.layers.size(); ++i) {
    EXPECT_EQ(c.layers[i].shortcut, i % 2 == 0) << i;
    EXPECT_FALSE(c.layers[i].moe) << i;
  }
  EXPECT_EQ(c.moe.num_experts, 512);
  EXPECT_EQ(c.moe.identity_experts, 256);
  EXPECT_EQ(c.moe.experts_per_token, 12);
  EXPECT_EQ(c.moe.intermediate_size, 2048);
  EXPECT_EQ(c.moe.routed_scale, 6.0f);
  EXPECT_EQ(c.ropes[0].theta, 1e7);
  EXPECT_TRUE(c.ropes[0].interleaved);
  EXPECT_EQ(c.norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(c.mla.q_scale, std::sqrt(64.0f / 1536));
  EXPECT_FLOAT_EQ(c.mla.kv_scale, std::sqrt(64.0f / 512));
  const ModelConfig off = good(base("LongcatFlashForCausalLM", R"({"num_layers":1,"mla_scale_q_lora":false,
      "mla_scale_kv_lora":false,"zero_expert_num":0,"num_experts_per_tok":3})"));
  EXPECT_EQ(off.mla.q_scale, 1.0f);
  EXPECT_EQ(off.mla.kv_scale, 1.0f);
  EXPECT_EQ(off.moe.choices(), 512);
  EXPECT_EQ(off.moe.experts_per_token, 3);
}

TEST(ConfigFamilies, Yarn) {
  const auto rope = [](const std::string& extra) {
    return good(base("Qwen2ForCausalLM", R"({"rope_scaling":{"type":"yarn","factor":4.0)" + extra + "}}"));
  };
  const ModelConfig plain = rope(R"(,"original_max_position_embeddings":256)");
  EXPECT_EQ(plain.ropes[0].scaling, RopeScaling::yarn);
  EXPECT_EQ(plain.ropes[0].beta_fast, 32.0);
  EXPECT_EQ(plain.ropes[0].beta_slow, 1.0);
  EXPECT_TRUE(plain.ropes[0].truncate);
  EXPECT_DOUBLE_EQ(plain.ropes[0].attention_factor, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(plain.max_position, 1024);  // the scaled length
  EXPECT_EQ(rope("").ropes[0].original_max_position, 512);
  EXPECT_EQ(rope(R"(,"original_max_position_embeddings":64)").max_position, 512);
  const ModelConfig full =
      rope(R"(,"attention_factor":0.7,"beta_fast":16,"beta_slow":2,"truncate":false,"mscale":1)");
  EXPECT_EQ(full.ropes[0].attention_factor, 0.7);
  EXPECT_EQ(full.ropes[0].beta_fast, 16.0);
  EXPECT_EQ(full.ropes[0].beta_slow, 2.0);
  EXPECT_FALSE(full.ropes[0].truncate);
  EXPECT_DOUBLE_EQ(rope(R"(,"mscale":0.7,"mscale_all_dim":1.4)").ropes[0].attention_factor,
                   (0.07 * std::log(4.0) + 1) / (0.14 * std::log(4.0) + 1));
  EXPECT_DOUBLE_EQ(rope(R"(,"mscale":0.7)").ropes[0].attention_factor, 0.1 * std::log(4.0) + 1);
}

struct Bad {
  const char* architecture;
  const char* patch;
  std::vector<std::string> parts;  ///< of the message
};

TEST(ConfigFamilies, RefuseByKeyAndValue) {
  const Bad cases[] = {
      {"MistralForCausalLM", R"({"sliding_window":0})", {"sliding_window is 0", "from 1"}},
      {"MistralForCausalLM", R"({"sliding_window":-1})", {"sliding_window is -1"}},
      {"MistralForCausalLM", R"({"sliding_window":8.5})", {"sliding_window is 8.5"}},
      {"Qwen2ForCausalLM", R"({"max_window_layers":-1})", {"max_window_layers is -1"}},
      {"Qwen2ForCausalLM",
       R"({"layer_types":["full_attention"]})",
       {"layer_types is [\"full_attention\"]", "num_hidden_layers = 4"}},
      {"Qwen2ForCausalLM", R"({"layer_types":"full_attention"})", {"layer_types is \"full_attention\""}},
      {"Qwen2ForCausalLM",
       R"({"sliding_window":null,"layer_types":["full_attention","full_attention",
        "full_attention","sliding_attention"]})",
       {"sliding_window is null", "layer 3", "1 or more"}},
      {"Qwen2ForCausalLM",
       R"({"layer_types":["full_attention","full_attention","full_attention",7]})",
       {"layer_types is", "sliding_attention"}},
      {"Qwen2ForCausalLM",
       R"({"layer_types":["linear_attention","full_attention","full_attention",
        "full_attention"]})",
       {"layer_types", "linear_attention", "each must be full_attention or sliding_attention"}},
      {"Qwen2ForCausalLM",
       R"({"layer_types":["chunked_attention","full_attention","full_attention",
        "full_attention"]})",
       {"layer_types", "chunked_attention"}},
      {"Gemma2ForCausalLM", R"({"sliding_window":null})", {"sliding_window is null", "layer 0"}},
      {"Gemma2ForCausalLM", R"({"attn_logit_softcapping":0})", {"attn_logit_softcapping is 0"}},
      {"Gemma2ForCausalLM", R"({"final_logit_softcapping":-30})", {"final_logit_softcapping is -30"}},
      {"Gemma2ForCausalLM", R"({"final_logit_softcapping":"NaN"})", {"final_logit_softcapping is \"NaN\""}},
      {"Gemma2ForCausalLM", R"({"query_pre_attn_scalar":0})", {"query_pre_attn_scalar is 0"}},
      {"Gemma2ForCausalLM", R"({"hidden_activation":"quick_gelu"})", {"hidden_activation is \"quick_gelu\""}},
      {"Gemma3ForCausalLM", R"({"use_bidirectional_attention":true})", {"use_bidirectional_attention"}},
      {"Gemma3ForCausalLM", R"({"sliding_window_pattern":0})", {"sliding_window_pattern is 0"}},
      {"Gemma3ForCausalLM", R"({"rope_local_base_freq":0})", {"rope_local_base_freq is 0"}},
      {"Gemma3ForCausalLM",
       R"({"rope_parameters":{"full_attention":{"rope_theta":1e6}}})",
       {"rope_parameters: sliding_attention is missing"}},
      {"Gemma3ForCausalLM",
       R"({"rope_parameters":{"full_attention":{"rope_type":"linear"},
        "sliding_attention":{}}})",
       {"rope_parameters: full_attention: factor is missing"}},
      {"Gemma3ForCausalLM", R"({"rope_parameters":3})", {"rope_parameters is 3"}},
      {"GraniteForCausalLM", R"({"embedding_multiplier":0})", {"embedding_multiplier is 0"}},
      {"GraniteForCausalLM", R"({"residual_multiplier":-1})", {"residual_multiplier is -1"}},
      {"GraniteForCausalLM", R"({"attention_multiplier":1e300})", {"attention_multiplier is 1e+300"}},
      {"GraniteForCausalLM", R"({"logits_scaling":"NaN"})", {"logits_scaling is \"NaN\""}},
      {"Phi3ForCausalLM", R"({"partial_rotary_factor":0})", {"partial_rotary_factor is 0", "even"}},
      {"Phi3ForCausalLM", R"({"partial_rotary_factor":0.2})", {"partial_rotary_factor is 0.2", "16"}},
      {"Phi3ForCausalLM", R"({"partial_rotary_factor":1.5})", {"partial_rotary_factor is 1.5"}},
      {"Phi3ForCausalLM",
       R"({"rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1],
        "long_factor":[1,1]}})",
       {"rope_scaling: long_factor is [1,1]", "8 numbers"}},
      {"Phi3ForCausalLM",
       R"({"rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,0],
        "long_factor":[1,1,1,1,1,1,1,1]}})",
       {"short_factor is [1,1,1,1,1,1,1,0]"}},
      {"Phi3ForCausalLM",
       R"({"rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,"NaN"],
        "long_factor":[1,1,1,1,1,1,1,1]}})",
       {"short_factor is"}},
      {"Phi3ForCausalLM",
       R"({"rope_scaling":{"type":"longrope","short_factor":[1,1,1,1,1,1,1,1]}})",
       {"long_factor is missing"}},
      {"Phi3ForCausalLM",
       R"({"original_max_position_embeddings":1,"rope_scaling":{"type":"longrope"}})",
       {"original_max_position_embeddings is 1"}},
      {"Qwen2ForCausalLM", R"({"rope_scaling":{"type":"yarn"}})", {"factor is missing"}},
      {"Qwen2ForCausalLM", R"({"rope_scaling":{"type":"yarn","factor":0.5}})", {"factor is 0.5"}},
      {"Qwen2ForCausalLM",
       R"({"rope_scaling":{"type":"yarn","factor":4,"beta_fast":0.5}})",
       {"beta_fast is 0.5", "beta_slow or more"}},
      {"Qwen2ForCausalLM",
       R"({"rope_scaling":{"type":"yarn","factor":4,"attention_factor":0}})",
       {"attention_factor is 0"}},
      {"Qwen2ForCausalLM", R"({"rope_scaling":{"type":"yarn","factor":4,"truncate":1}})", {"truncate is 1"}},
      {"Qwen2ForCausalLM",
       R"({"rope_theta":1,"rope_scaling":{"type":"yarn","factor":4}})",
       {"rope_theta", "above 1"}},
      {"Qwen2ForCausalLM",
       R"({"rope_scaling":{"type":"dynamic","factor":4}})",
       {"type is \"dynamic\"", "default", "max_position_embeddings"}},
      {"Llama4ForCausalLM", R"({"attention_chunk_size":0})", {"attention_chunk_size is 0"}},
      {"Llama4ForCausalLM", R"({"no_rope_layers":[1,1,1]})", {"no_rope_layers is [1,1,1]", "= 4"}},
      {"Llama4ForCausalLM", R"({"no_rope_layers":[1,1,1,2]})", {"no_rope_layers is [1,1,1,2]"}},
      {"Llama4ForCausalLM", R"({"no_rope_layer_interval":0})", {"no_rope_layer_interval is 0"}},
      {"Llama4ForCausalLM", R"({"moe_layers":[4]})", {"moe_layers is [4]", "0 to 3"}},
      {"Llama4ForCausalLM", R"({"moe_layers":[-1]})", {"moe_layers is [-1]"}},
      {"Llama4ForCausalLM", R"({"moe_layers":"all"})", {"moe_layers is \"all\""}},
      {"Llama4ForCausalLM", R"({"interleave_moe_layer_step":0})", {"interleave_moe_layer_step is 0"}},
      {"Llama4ForCausalLM",
       R"({"num_local_experts":2,"num_experts_per_tok":3})",
       {"num_experts_per_tok is 3"}},
      {"Llama4ForCausalLM", R"({"num_local_experts":2,"floor_scale":0})", {"floor_scale is 0"}},
      {"Llama4ForCausalLM", R"({"num_local_experts":2,"attn_scale":-1})", {"attn_scale is -1"}},
      {"Llama4ForCausalLM",
       R"({"num_local_experts":2,"attn_temperature_tuning":"on"})",
       {"attn_temperature_tuning is \"on\""}},
      {"Llama4ForCausalLM",
       R"({"layer_types":["chunked_attention","chunked_attention","chunked_attention",
        "sparse"]})",
       {"layer_types", "chunked_attention"}},
      {"Olmo2ForCausalLM", R"({"num_key_value_heads":3})", {"num_key_value_heads is 3"}},
      {"DeepseekV3ForCausalLM", R"({"kv_lora_rank":0})", {"kv_lora_rank is 0"}},
      {"DeepseekV3ForCausalLM", R"({"qk_rope_head_dim":63})", {"qk_rope_head_dim is 63", "even"}},
      {"DeepseekV3ForCausalLM", R"({"n_group":7})", {"n_group is 7", "n_routed_experts = 256"}},
      {"DeepseekV3ForCausalLM", R"({"n_group":4,"topk_group":5})", {"topk_group is 5", "n_group = 4"}},
      {"DeepseekV3ForCausalLM",
       R"({"n_group":128,"topk_group":2})",
       {"num_experts_per_tok is missing", "at most 4"}},
      {"DeepseekV3ForCausalLM", R"({"topk_method":"random"})", {"topk_method is \"random\"", "noaux_tc"}},
      {"DeepseekV3ForCausalLM", R"({"scoring_func":"tanh"})", {"scoring_func is \"tanh\"", "sigmoid"}},
      {"DeepseekV3ForCausalLM",
       R"({"mlp_layer_types":["dense"]})",
       {"mlp_layer_types is", "dense or sparse"}},
      {"DeepseekV2ForCausalLM", R"({"use_mla":false})", {"use_mla is false"}},
      {"LongcatFlashForCausalLM", R"({"q_lora_rank":null,"num_layers":2})", {"q_lora_rank is null"}},
      {"LongcatFlashForCausalLM", "{}", {"num_layers is missing"}},
      {"LongcatFlashForCausalLM",
       R"({"num_layers":2,"zero_expert_type":"copy"})",
       {"zero_expert_type is \"copy\"", "identity"}},
      {"LongcatFlashForCausalLM",
       R"({"num_layers":2,"n_routed_experts":4,"zero_expert_num":2,"moe_topk":7})",
       {"moe_topk is 7", "at most n_routed_experts + zero_expert_num = 6"}},
      {"LongcatFlashForCausalLM", R"({"num_layers":2,"router_bias":true})", {"router_bias is true"}},
      {"DeepseekV32ForCausalLM", R"({"index_topk":0})", {"index_topk is 0"}},
      {"DeepseekV32ForCausalLM", R"({"index_head_dim":96})", {"index_head_dim is 96", "power of two"}},
      {"DeepseekV32ForCausalLM",
       R"({"index_head_dim":32})",
       {"index_head_dim is 32", "qk_rope_head_dim = 64"}},
      {"DeepseekV32ForCausalLM", R"({"q_lora_rank":null})", {"q_lora_rank is null", "indexer"}},
      {"GlmMoeDsaForCausalLM", R"({"indexer_types":["full"]})", {"indexer_types is", "num_hidden_layers"}},
      {"GlmMoeDsaForCausalLM",
       R"({"index_topk_pattern":"SFFF"})",
       {"index_topk_pattern is", "first one full"}},
      {"GlmMoeDsaForCausalLM", R"({"index_topk_pattern":"FFXF"})", {"index_topk_pattern is", "shared (S)"}},
      {"MiniCPM3ForCausalLM", R"({"scale_depth":-1})", {"scale_depth is -1"}},
  };
  for (const Bad& bad : cases) {
    const auto result = parse_model_config(base(bad.architecture, bad.patch).dump(), "", "/m");
    ASSERT_FALSE(result.ok()) << bad.architecture << " " << bad.patch;
    const std::string& message = result.error().message;
    EXPECT_EQ(message.rfind("/m/config.json: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    for (const auto& part : bad.parts)
      EXPECT_NE(message.find(part), std::string::npos) << bad.patch << " gave " << message;
  }
}

}  // namespace
}  // namespace fovea
