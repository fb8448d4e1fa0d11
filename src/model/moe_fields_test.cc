// config.json of the expert families: parsed values and rejected settings.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "fovea/result.h"
#include "model/config.h"

namespace fovea {
namespace {

using Json = nlohmann::ordered_json;
using Ints = std::vector<int>;

Json base(const std::string& architecture, const std::string& patch = "{}") {
  Json config{{"architectures", {architecture}}, {"vocab_size", 128},      {"hidden_size", 64},
              {"intermediate_size", 96},         {"num_hidden_layers", 4}, {"num_attention_heads", 4},
              {"num_key_value_heads", 2},        {"head_dim", 16},         {"max_position_embeddings", 512},
              {"num_local_experts", 6}};
  if (architecture == "GptOssForCausalLM")
    config["rope_scaling"] =
        Json::parse(R"({"rope_type":"yarn","factor":32.0,"beta_fast":32.0,"beta_slow":1.0,
        "original_max_position_embeddings":4096,"truncate":false})");
  config.update(Json::parse(patch));  // keeps null
  return config;
}

ModelConfig good(const Json& config) {
  auto result = parse_model_config(config.dump(), "", "/m");
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : ModelConfig{};
}

Ints expert_layers(const ModelConfig& c) {
  Ints out;
  for (const LayerConfig& layer : c.layers)
    out.push_back(layer.moe);
  return out;
}
Ints windows(const ModelConfig& c) {
  Ints out;
  for (const LayerConfig& layer : c.layers)
    out.push_back(layer.window);
  return out;
}

TEST(MoeFields, Mixtral) {
  const ModelConfig c = good(base("MixtralForCausalLM"));
  EXPECT_EQ(c.moe.num_experts, 6);
  EXPECT_EQ(c.moe.experts_per_token, 2);
  EXPECT_EQ(c.moe.intermediate_size, 96);
  EXPECT_EQ(c.moe.shared_intermediate_size, 0);
  EXPECT_EQ(c.moe.router, MoeRouter::softmax_then_top);
  EXPECT_EQ(c.moe.layout, MoeLayout::mixtral);
  EXPECT_TRUE(c.moe.renormalize);
  EXPECT_FALSE(c.moe.mxfp4 || c.qkv_bias || c.sinks);
  EXPECT_EQ(c.moe.swiglu_limit, 0.0f);
  EXPECT_EQ(c.ropes[0].theta, 1e6);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
  EXPECT_EQ(expert_layers(c), (Ints{1, 1, 1, 1}));
  EXPECT_EQ(windows(c), (Ints{0, 0, 0, 0}));
  const ModelConfig other = good(base("MixtralForCausalLM", R"({"num_experts":3,"num_local_experts":null,
      "num_experts_per_tok":3,"sliding_window":8,"hidden_act":"gelu"})"));
  EXPECT_EQ(other.moe.num_experts, 3);
  EXPECT_EQ(other.moe.experts_per_token, 3);
  EXPECT_EQ(windows(other), (Ints{8, 8, 8, 8}));
  EXPECT_EQ(other.activation, Activation::gelu);
}

TEST(MoeFields, Qwen3Moe) {
  const auto config = [](const std::string& patch) {
    Json json = base("Qwen3MoeForCausalLM", R"({"num_local_experts":12})");
    json.update(Json::parse(patch));
    return good(json);
  };
  const ModelConfig c = config("{}");
  EXPECT_EQ(c.moe.experts_per_token, 8);
  EXPECT_EQ(c.moe.intermediate_size, 768);
  EXPECT_EQ(c.intermediate_size, 96);
  EXPECT_EQ(c.moe.layout, MoeLayout::qwen3);
  EXPECT_FALSE(c.moe.renormalize);
  EXPECT_EQ(c.qk_norm, QkNorm::head);
  EXPECT_EQ(expert_layers(c), (Ints{1, 1, 1, 1}));
  EXPECT_TRUE(config(R"({"norm_topk_prob":true})").moe.renormalize);
  EXPECT_EQ(config(R"({"moe_intermediate_size":40})").moe.intermediate_size, 40);
  EXPECT_EQ(expert_layers(config(R"({"decoder_sparse_step":2})")), (Ints{0, 1, 0, 1}));
  EXPECT_EQ(expert_layers(config(R"({"decoder_sparse_step":3})")), (Ints{0, 0, 1, 0}));
  EXPECT_EQ(expert_layers(config(R"({"mlp_only_layers":[0,3]})")), (Ints{0, 1, 1, 0}));
  EXPECT_EQ(expert_layers(config(R"({"mlp_only_layers":[1],"decoder_sparse_step":2})")), (Ints{0, 0, 0, 1}));
  EXPECT_EQ(expert_layers(config(R"({"mlp_only_layers":[]})")), (Ints{1, 1, 1, 1}));
  EXPECT_EQ(windows(config(R"({"sliding_window":8})")), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(windows(config(R"({"sliding_window":8,"use_sliding_window":true,"max_window_layers":2})")),
            (Ints{8, 8, 8, 8}));
}

TEST(MoeFields, GptOss) {
  const ModelConfig c = good(base("GptOssForCausalLM"));
  EXPECT_EQ(c.moe.experts_per_token, 4);
  EXPECT_EQ(c.moe.intermediate_size, 96);
  EXPECT_EQ(c.moe.router, MoeRouter::top_then_softmax);
  EXPECT_EQ(c.moe.layout, MoeLayout::gpt_oss);
  EXPECT_TRUE(c.qkv_bias && c.o_bias && c.sinks);
  EXPECT_FALSE(c.moe.mxfp4 || c.tie_word_embeddings);
  EXPECT_EQ(c.moe.swiglu_limit, 7.0f);
  EXPECT_EQ(windows(c), (Ints{128, 0, 128, 0}));
  EXPECT_EQ(c.ropes[0].theta, 150000.0);
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::yarn);
  EXPECT_FALSE(c.ropes[0].truncate);
  EXPECT_NEAR(c.ropes[0].attention_factor, 0.1 * std::log(32.0) + 1, 1e-12);
  Json bare = base("GptOssForCausalLM");
  bare.erase("head_dim");
  EXPECT_EQ(good(bare).head_dim, 64);
  const ModelConfig other = good(base("GptOssForCausalLM", R"({"swiglu_limit":3.5,"swiglu_alpha":1.702,
      "attention_bias":false,"sliding_window":8,"num_experts_per_tok":1,
      "layer_types":["full_attention","sliding_attention","full_attention","full_attention"]})"));
  EXPECT_EQ(other.moe.swiglu_limit, 3.5f);
  EXPECT_FALSE(other.qkv_bias || other.o_bias);
  EXPECT_EQ(windows(other), (Ints{0, 8, 0, 0}));
}

TEST(MoeFields, Mxfp4IsForGptOss) {
  EXPECT_TRUE(good(base("GptOssForCausalLM", R"({"quantization_config":{"quant_method":"mxfp4",
      "modules_to_not_convert":["model.layers.*.self_attn","lm_head"]}})"))
                  .moe.mxfp4);
  EXPECT_TRUE(
      good(base("GptOssForCausalLM", R"({"quantization_config":{"quant_method":"mxfp4"}})")).moe.mxfp4);
  EXPECT_FALSE(good(base("GptOssForCausalLM", R"({"quantization_config":null})")).moe.mxfp4);
}

TEST(MoeFields, RefusesByKeyAndValue) {
  struct Bad {
    const char *architecture, *patch;
    std::vector<std::string> parts;
  };
  const char *mixtral = "MixtralForCausalLM", *qwen = "Qwen3MoeForCausalLM", *gpt = "GptOssForCausalLM";
  const Bad cases[] = {
      {mixtral, R"({"num_experts_per_tok":7})", {"num_experts_per_tok is 7", "num_local_experts = 6"}},
      {mixtral, R"({"num_experts_per_tok":0})", {"num_experts_per_tok is 0"}},
      {mixtral, R"({"num_local_experts":0})", {"num_local_experts is 0", "from 1"}},
      {mixtral, R"({"num_local_experts":-1})", {"num_local_experts is -1"}},
      {mixtral, R"({"num_local_experts":1025})", {"num_local_experts is 1025", "1024"}},
      {mixtral, R"({"num_local_experts":null})", {"num_local_experts is null"}},
      {mixtral, R"({"num_local_experts":"6"})", {"num_local_experts is \"6\""}},
      {mixtral, R"({"intermediate_size":0})", {"intermediate_size is 0"}},
      {mixtral,
       R"({"quantization_config":{"quant_method":"mxfp4"}})",
       {"quantization_config is", "gpt-oss's mxfp4"}},
      {qwen, R"({"num_local_experts":6})", {"num_experts_per_tok is missing", "num_local_experts = 6"}},
      {qwen, R"({"num_experts":4,"num_experts_per_tok":5})", {"num_experts_per_tok is 5", "num_experts = 4"}},
      {qwen, R"({"num_experts_per_tok":2,"moe_intermediate_size":0})", {"moe_intermediate_size is 0"}},
      {qwen, R"({"num_experts_per_tok":2,"norm_topk_prob":1})", {"norm_topk_prob is 1", "true or false"}},
      {qwen, R"({"num_experts_per_tok":2,"decoder_sparse_step":0})", {"decoder_sparse_step is 0"}},
      {qwen,
       R"({"num_experts_per_tok":2,"mlp_only_layers":[4]})",
       {"mlp_only_layers is [4]", "0 to 3", "num_hidden_layers"}},
      {qwen, R"({"num_experts_per_tok":2,"mlp_only_layers":[-1]})", {"mlp_only_layers is [-1]"}},
      {qwen, R"({"num_experts_per_tok":2,"mlp_only_layers":["0"]})", {"mlp_only_layers is [\"0\"]"}},
      {qwen, R"({"num_experts_per_tok":2,"mlp_only_layers":0})", {"mlp_only_layers is 0"}},
      {qwen, R"({"num_experts_per_tok":2,"mlp_only_layers":[99999999999999999999]})", {"mlp_only_layers"}},
      {gpt, R"({"rope_scaling":null})", {"rope_parameters is missing", "YaRN"}},
      {gpt, R"({"swiglu_limit":0})", {"swiglu_limit is 0"}},
      {gpt, R"({"swiglu_alpha":1.0})", {"swiglu_alpha is 1.0", "1.702"}},
      {gpt, R"({"hidden_act":"gelu"})", {"hidden_act is \"gelu\"", "silu"}},
      {gpt, R"({"sliding_window":null})", {"sliding_window is null"}},
      {gpt,
       R"({"quantization_config":{"quant_method":"gptq"}})",
       {"quantization_config is", "gptq", "mxfp4", "bfloat16"}},
      {gpt, R"({"quantization_config":{"quant_method":4}})", {"quant_method is 4"}},
      {gpt, R"({"quantization_config":"mxfp4"})", {"quantization_config is \"mxfp4\""}},
      {gpt, R"({"quantization_config":{}})", {"quantization_config is {}"}},
      {gpt,
       R"({"quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":"lm_head"}})",
       {"modules_to_not_convert is \"lm_head\"", "list"}},
      {gpt,
       R"({"hidden_size":80,"quantization_config":{"quant_method":"mxfp4"}})",
       {"hidden_size is 80", "multiple of 32"}},
      {gpt,
       R"({"intermediate_size":100,"quantization_config":{"quant_method":"mxfp4"}})",
       {"intermediate_size is 100", "multiple of 32"}},
  };
  for (const Bad& bad : cases) {
    const auto result = parse_model_config(base(bad.architecture, bad.patch).dump(), "", "/m");
    ASSERT_FALSE(result.ok()) << bad.patch;
    const std::string& message = result.error().message;
    EXPECT_EQ(message.rfind("/m/config.json: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    for (const auto& part : bad.parts)
      EXPECT_NE(message.find(part), std::string::npos) << bad.patch << " gave " << message;
  }
}

}  // namespace
}  // namespace fovea
