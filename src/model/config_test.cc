#include "model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "../tests/support/temp_dir.h"
#include "fovea/result.h"

namespace fovea {
namespace {

using Json = nlohmann::ordered_json;

Json base(const std::string& architecture = "LlamaForCausalLM") {
  return Json{{"architectures", {architecture}},
              {"vocab_size", 128},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_hidden_layers", 2},
              {"num_attention_heads", 4},
              {"num_key_value_heads", 2},
              {"max_position_embeddings", 512}};
}

Json with(Json config, const std::string& patch) {
  config.merge_patch(Json::parse(patch));  // null removes a key
  return config;
}

ModelConfig good(const Json& config, const std::string& generation = "") {
  auto result = parse_model_config(config.dump(), generation, "/m");
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : ModelConfig{};
}

TEST(Config, FillsWhatIsAbsent) {
  const ModelConfig c = good(base());
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.dtype, DType::f32);
  EXPECT_EQ(c.ropes[0].theta, 10000.0);
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::none);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-6f);
  EXPECT_FALSE(c.tie_word_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias);
  EXPECT_FALSE(c.bos_token_id.has_value());
  EXPECT_TRUE(c.eos_token_ids.empty());
  EXPECT_EQ(good(with(base(), R"({"num_key_value_heads":null})")).num_kv_heads, 4);
}

TEST(Config, ACheckpointWithScalesOfTheKvCacheAlone) {
  EXPECT_FALSE(good(base()).has_kv_scales);
  EXPECT_TRUE(good(with(base(), R"({"quantization_config":{"quant_method":"compressed-tensors",
      "config_groups":{},"kv_cache_scheme":{"num_bits":8,"type":"float","strategy":"tensor","dynamic":false}}})"))
                  .has_kv_scales);
}

TEST(Config, CheckpointsOfEightBitFloats) {
  const auto quantization = [](const char* config) {
    return good(with(base(), (R"({"quantization_config":)" + std::string(config) + "}").c_str()))
        .quantization;
  };
  EXPECT_FALSE(good(base()).quantization.fp8);
  for (const char* strategy : {"tensor", "channel"}) {
    const auto q =
        quantization((R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{
        "group_0":{"weights":{"num_bits":8,"type":"float","symmetric":true,"strategy":")" +
                      std::string(strategy) +
                      R"("},"input_activations":{"num_bits":8,"dynamic":true,"strategy":"token"},
        "targets":["Linear"]}},"ignore":["lm_head"]})")
                         .c_str());
    EXPECT_TRUE(q.fp8 && !q.blocks);
  }
  const auto blocks =
      quantization(R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{
      "num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]}}}})");
  EXPECT_TRUE(blocks.fp8 && blocks.blocks);
  const auto deepseek = quantization(R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic",
      "weight_block_size":[128,128]})");
  EXPECT_TRUE(deepseek.fp8 && deepseek.blocks);
  EXPECT_FALSE(quantization(R"({"quant_method":"fp8","activation_scheme":"static"})").blocks);
  EXPECT_TRUE(quantization(R"({"quant_method":"modelopt","quant_algo":"FP8"})").fp8);
}

TEST(Config, ReadsTransformers4) {
  const ModelConfig c = good(with(base(), R"({"torch_dtype":"bfloat16","rope_theta":500000,"rope_scaling":{
      "rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
      "original_max_position_embeddings":8192},"head_dim":24,"tie_word_embeddings":true,"attention_bias":true,
      "mlp_bias":true,"rms_norm_eps":1e-5,"bos_token_id":1,"eos_token_id":[2,3],"sliding_window":null,
      "hidden_act":"silu","quantization_config":null,"use_cache":true})"));
  EXPECT_EQ(c.dtype, DType::bf16);
  EXPECT_EQ(c.ropes[0].theta, 500000.0);
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::llama3);
  EXPECT_EQ(c.ropes[0].factor, 32.0);
  EXPECT_EQ(c.ropes[0].low_freq_factor, 1.0);
  EXPECT_EQ(c.ropes[0].high_freq_factor, 4.0);
  EXPECT_EQ(c.ropes[0].original_max_position, 8192);
  EXPECT_EQ(c.head_dim, 24);
  EXPECT_TRUE(c.tie_word_embeddings && c.qkv_bias && c.mlp_bias);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{2, 3}));
  const ModelConfig linear = good(with(base(), R"({"rope_scaling":{"type":"linear","factor":4}})"));
  EXPECT_EQ(linear.ropes[0].scaling, RopeScaling::linear);
  EXPECT_EQ(linear.ropes[0].factor, 4.0);
}

TEST(Config, ReadsTransformers5) {
  const ModelConfig c = good(with(base("Qwen3ForCausalLM"), R"({"dtype":"float16","torch_dtype":"float32",
      "rope_parameters":{"rope_theta":1000000,"rope_type":"default"},"layer_types":["full_attention",
      "full_attention"],"eos_token_id":7})"));
  EXPECT_EQ(c.dtype, DType::f16);
  EXPECT_EQ(c.ropes[0].theta, 1000000.0);
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::none);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{7}));
  const ModelConfig scaled =
      good(with(base(), R"({"rope_parameters":{"rope_theta":500000.0,"rope_type":"llama3",
      "factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})"));
  EXPECT_EQ(scaled.ropes[0].scaling, RopeScaling::llama3);
  EXPECT_EQ(scaled.ropes[0].factor, 8.0);
}

TEST(Config, Qwen3HasItsOwnHeadSizeAndHeadNorms) {
  EXPECT_EQ(good(base("Qwen3ForCausalLM")).head_dim, 128);
  EXPECT_EQ(good(with(base("Qwen3ForCausalLM"), R"({"head_dim":32})")).head_dim, 32);
  EXPECT_EQ(good(base("Qwen3ForCausalLM")).qk_norm, QkNorm::head);
  // A window disabled by use_sliding_window or max_window_layers.
  good(with(base("Qwen3ForCausalLM"), R"({"sliding_window":4096,"use_sliding_window":false})"));
  good(with(base("Qwen3ForCausalLM"),
            R"({"sliding_window":4096,"use_sliding_window":true,"max_window_layers":2})"));
}

TEST(Config, ABareConfigIsKnownByItsModelType) {
  const ModelConfig c = good(with(base(), R"({"architectures":null,"model_type":"qwen3"})"));
  EXPECT_EQ(c.architecture, "Qwen3ForCausalLM");
}

TEST(Config, EndTokensAreTheUnion) {
  const ModelConfig c =
      good(with(base(), R"({"eos_token_id":5})"),
           R"({"eos_token_id":[6,5],"bos_token_id":1,"temperature":0.6,"top_p":0.95,"top_k":20,
                                 "min_p":0.1,"do_sample":true})");
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_FLOAT_EQ(c.temperature.value(), 0.6f);
  EXPECT_FLOAT_EQ(c.top_p.value(), 0.95f);
  EXPECT_FLOAT_EQ(c.min_p.value(), 0.1f);
  EXPECT_EQ(c.top_k, 20);
  EXPECT_EQ(c.do_sample, true);
  const ModelConfig plain =
      good(with(base(), R"({"bos_token_id":3})"), R"({"bos_token_id":1,"temperature":null})");
  EXPECT_EQ(plain.bos_token_id, 3);  // config.json takes precedence
  EXPECT_FALSE(plain.temperature.has_value() || plain.top_p.has_value() || plain.top_k.has_value());
}

struct Bad {
  const char* patch;
  std::vector<std::string> parts;  ///< of the message
};

TEST(Config, RefusesByKeyAndValue) {
  const Bad cases[] = {
      {R"({"architectures":["GemmaForCausalLM"]})",
       {"architectures", "GemmaForCausalLM", "LlamaForCausalLM", "Phi3ForCausalLM"}},
      {R"({"architectures":[]})", {"architectures", "LlamaForCausalLM"}},
      {R"({"architectures":"LlamaForCausalLM"})", {"architectures", "LlamaForCausalLM"}},
      {R"({"architectures":null})", {"architectures is missing"}},
      {R"({"vocab_size":null})", {"vocab_size is missing", "from 1 to 10000000"}},
      {R"({"vocab_size":0})", {"vocab_size is 0"}},
      {R"({"vocab_size":10000001})", {"vocab_size is 10000001"}},
      {R"({"vocab_size":"128"})", {"vocab_size is \"128\""}},
      {R"({"vocab_size":128.0})", {"vocab_size is 128.0"}},
      {R"({"vocab_size":true})", {"vocab_size is true"}},
      {R"({"hidden_size":-64})", {"hidden_size is -64"}},
      {R"({"hidden_size":18446744073709551615})", {"hidden_size is 18446744073709551615"}},
      {R"({"hidden_size":1e300})", {"hidden_size is 1e+300"}},
      {R"({"intermediate_size":null})", {"intermediate_size is missing"}},
      {R"({"num_hidden_layers":10001})", {"num_hidden_layers is 10001", "10000"}},
      {R"({"num_attention_heads":0})", {"num_attention_heads is 0"}},
      {R"({"num_key_value_heads":3})", {"num_key_value_heads is 3", "num_attention_heads = 4"}},
      {R"({"num_key_value_heads":8})", {"num_key_value_heads is 8"}},
      {R"({"num_attention_heads":6})", {"head_dim is missing", "6 must divide hidden_size = 64"}},
      {R"({"head_dim":15})", {"head_dim is 15", "even"}},
      {R"({"head_dim":0})", {"head_dim is 0"}},
      {R"({"num_attention_heads":65536,"head_dim":65536})", {"head_dim", "at most"}},
      {R"({"max_position_embeddings":null})", {"max_position_embeddings is missing"}},
      {R"({"rms_norm_eps":-1})", {"rms_norm_eps is -1"}},
      {R"({"tie_word_embeddings":"yes"})", {"tie_word_embeddings is \"yes\"", "true or false"}},
      {R"({"torch_dtype":"int8"})", {"torch_dtype is \"int8\"", "bfloat16"}},
      {R"({"dtype":7})", {"dtype is 7"}},
      {R"({"hidden_act":"selu"})", {"hidden_act is \"selu\"", "silu"}},
      {R"({"quantization_config":{"quant_method":"gptq"}})", {"quantization_config", "gptq", "bfloat16"}},
      {R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"group_0":{}},
          "kv_cache_scheme":{"num_bits":8,"type":"float"}}})",
       {"quantization_config", "quantised weights"}},
      {R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{
          "num_bits":4,"type":"int"}}}}})",
       {"group_0", "num_bits 4"}},
      {R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{
          "num_bits":8,"type":"int","strategy":"channel"}}}}})",
       {"type \"int\""}},
      {R"({"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{
          "num_bits":8,"type":"float","strategy":"group"}}}}})",
       {"strategy \"group\"", "block"}},
      {R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[64,64]}})",
       {"weight_block_size is [64,64]"}},
      {R"({"quantization_config":{"quant_method":"modelopt","quant_algo":"NVFP4"}})",
       {"quantised weights", "NVFP4"}},
      {R"({"quantization_config":{"quant_method":"compressed-tensors","kv_cache_scheme":{"num_bits":4}}})",
       {"quantization_config", "num_bits 8"}},
      {R"({"rope_theta":0})", {"rope_theta is 0"}},
      {R"({"rope_scaling":3})", {"rope_scaling is 3", "object"}},
      {R"({"rope_scaling":{"rope_type":"mrope","factor":4}})",
       {"rope_scaling: rope_type is \"mrope\"", "llama3", "longrope"}},
      {R"({"rope_scaling":{"type":"dynamic"}})", {"type is \"dynamic\"", "cached", "yarn"}},
      {R"({"rope_scaling":{"rope_type":"linear"}})", {"factor is missing"}},
      {R"({"rope_scaling":{"rope_type":"linear","factor":0}})", {"factor is 0"}},
      {R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":3,
          "original_max_position_embeddings":8192}})",
       {"high_freq_factor is 3", "low_freq_factor or more"}},
      {R"({"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4}})",
       {"original_max_position_embeddings is missing"}},
      {R"({"rope_parameters":{"full_attention":{"rope_theta":1e6},"rope_type":"default"}})", {"layer type"}},
      {R"({"rope_parameters":{"rope_theta":1e6,"partial_rotary_factor":0.5}})",
       {"partial_rotary_factor is 0.5"}},
      {R"({"eos_token_id":-1})", {"eos_token_id is -1"}},
      {R"({"eos_token_id":[1,"2"]})", {"eos_token_id is [1,\"2\"]"}},
      {R"({"eos_token_id":4294967296})", {"eos_token_id is 4294967296"}},
      {R"({"bos_token_id":{}})", {"bos_token_id is {}"}},
  };
  for (const Bad& bad : cases) {
    const auto result = parse_model_config(with(base(), bad.patch).dump(), "", "/m");
    ASSERT_FALSE(result.ok()) << bad.patch;
    const std::string& message = result.error().message;
    EXPECT_EQ(message.rfind("/m/config.json: ", 0), 0u) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    for (const auto& part : bad.parts)
      EXPECT_NE(message.find(part), std::string::npos) << bad.patch << " gave " << message;
  }
}

TEST(Config, RefusesABadGenerationConfig) {
  for (const Bad& bad :
       {Bad{R"({"temperature":-1})", {"temperature is -1"}}, Bad{R"({"top_p":1.5})", {"top_p is 1.5"}},
        Bad{R"({"repetition_penalty":0})", {"repetition_penalty is 0"}},
        Bad{R"({"max_new_tokens":0})", {"max_new_tokens is 0"}}, Bad{R"({"top_k":-2})", {"top_k is -2"}},
        Bad{R"({"do_sample":1})", {"do_sample is 1"}},
        Bad{R"({"eos_token_id":"x"})", {"eos_token_id is \"x\""}}, Bad{"[]", {"JSON object"}},
        Bad{"{", {"not valid JSON"}}}) {
    const auto result = parse_model_config(base().dump(), bad.patch, "/m");
    ASSERT_FALSE(result.ok()) << bad.patch;
    EXPECT_EQ(result.error().message.rfind("/m/generation_config.json: ", 0), 0u) << result.error().message;
    for (const auto& part : bad.parts)
      EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  }
}

TEST(Config, RefusesWhatIsNoJsonObject) {
  for (const std::string text : {"", "[]", "null", "{", "{\"a\":1e999}", "{\"a\":\"\xff\"}", "{} x"}) {
    const auto result = parse_model_config(text, "", "/m");
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().message.rfind("/m/config.json: ", 0), 0u) << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
  const std::string deep(1 << 20, '[');
  EXPECT_FALSE(parse_model_config(deep, "", "/m").ok());
  const std::string ids = R"({"eos_token_id":)" + deep + std::string(deep.size(), ']') + "}";
  const auto nested = parse_model_config(base().dump(), ids, "/m");
  ASSERT_FALSE(nested.ok());
  EXPECT_EQ(nested.error().message, "/m/generation_config.json: nested deeper than 100 levels");
}

TEST(Config, ReadsADirectory) {
  test::TempDir dir;
  const auto missing = load_model_config(dir.path());
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("config.json: missing"), std::string::npos);
  dir.write("config.json", base().dump());
  EXPECT_TRUE(load_model_config(dir.path()).ok());
  dir.write("generation_config.json", R"({"eos_token_id":9})");
  const auto result = load_model_config(dir.path());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->eos_token_ids, (std::vector<int32_t>{9}));
  test::TempDir other;
  other.write("generation_config.json", R"({"repetition_penalty":1.5,"max_new_tokens":7})");
  other.write("broken.json", "[]");
  for (const char* none : {"none", "vllm"})
    EXPECT_TRUE(load_model_config(dir.path(), none)->eos_token_ids.empty());
  for (const std::string& source : {other.path(), other.path() + "/generation_config.json"}) {
    const auto given = load_model_config(dir.path(), source);
    ASSERT_TRUE(given.ok());
    EXPECT_TRUE(given->eos_token_ids.empty());
    EXPECT_EQ(given->repetition_penalty, 1.5f);
    EXPECT_EQ(given->max_new_tokens, 7);
  }
  const auto broken = load_model_config(dir.path(), other.path() + "/broken.json");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message.rfind(other.path() + "/broken.json: ", 0), 0u);
  EXPECT_FALSE(load_model_config(dir.path(), "/no/such/place").ok());
  dir.write("generation_config.json", "");
  EXPECT_FALSE(load_model_config(dir.path()).ok());
}

}  // namespace
}  // namespace fovea
