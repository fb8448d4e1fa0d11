// The attention specs read from each family's config.json, and errors for invalid ones.
#include "model/attention_shapes.h"
#include "fovea/attention.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AttentionShapes shapes_of(const std::string& config) {
  auto shapes = parse_attention_shapes(config, "m/config.json");
  EXPECT_TRUE(shapes.ok()) << shapes.error().message;
  return shapes ? *shapes : AttentionShapes{};
}

std::string refusal(const std::string& config) {
  const auto shapes = parse_attention_shapes(config, "m/config.json");
  return shapes ? "accepted" : shapes.error().message;
}

/// "full 16/2 d128", plus all non-default properties.
std::string line(const AttentionSpec& s) {
  std::string out = std::string(to_string(kind_of(s))) + " " + std::to_string(s.num_heads) + "/" +
                    std::to_string(s.num_kv_heads) + " d" + std::to_string(s.head_dim);
  if (s.v_head_dim != s.head_dim) out += "/" + std::to_string(s.v_head_dim);
  if (s.linear != LinearAttention::none) out += " " + std::string(to_string(s.linear));
  if (s.mask.window_left >= 0) out += " left " + std::to_string(s.mask.window_left);
  if (s.mask.window_right >= 0) out += " right " + std::to_string(s.mask.window_right);
  if (s.mask.chunk > 0) out += " chunk " + std::to_string(s.mask.chunk);
  if (s.softcap > 0) out += " cap " + std::to_string(static_cast<int>(s.softcap));
  if (s.use_mla)
    out += " mla " + std::to_string(s.mla_nope_head_dim) + "+" + std::to_string(s.mla_rope_head_dim) + "/" +
           std::to_string(s.mla_v_head_dim);
  if (s.has_sink) out += " sink";
  if (s.has_alibi) out += " alibi";
  if (s.mask.spans) out += " spans";
  if (s.needs.has(Feature::kv_sharing)) out += " shared";
  if (s.type != AttentionType::decoder) out += " " + std::string(to_string(s.type));
  if (!s.mask.causal) out += " non-causal";
  return out;
}

/// A line for each spec, with its number of layers before it.
std::vector<std::string> lines(const AttentionShapes& shapes) {
  std::vector<std::string> out;
  for (size_t i = 0; i < shapes.specs.size(); ++i)
    out.push_back(std::to_string(shapes.layers[i]) + " x " + line(shapes.specs[i]));
  return out;
}
std::vector<std::string> lines(const std::string& config) {
  return lines(shapes_of(config));
}

TEST(AttentionShapes, AModelThatTheEngineRuns) {
  const AttentionShapes s = shapes_of(R"({"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3",
    "vocab_size":128,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,
    "num_key_value_heads":2,"head_dim":32,"max_position_embeddings":512,"dtype":"bfloat16"})");
  EXPECT_TRUE(s.runnable);
  EXPECT_EQ(s.why_not, "");
  EXPECT_EQ(s.dtype, DType::bf16);
  EXPECT_EQ(s.specs.at(0).dtype, DType::bf16);
  EXPECT_EQ(s.specs.at(0).page_size, 0);
  EXPECT_FLOAT_EQ(s.specs.at(0).scale, static_cast<float>(1 / std::sqrt(32.0)));
  EXPECT_THAT(lines(s), ElementsAre("4 x full 4/2 d32"));
  EXPECT_THAT(s.notes, IsEmpty());
}

TEST(AttentionShapes, AnArchitectureOfTheEngineWithSettingsThatItRefuses) {
  const AttentionShapes s = shapes_of(R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",
    "vocab_size":128,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
    "max_position_embeddings":512,"torch_dtype":"bfloat16","quantization_config":{"quant_method":"gptq"}})");
  EXPECT_FALSE(s.runnable);
  EXPECT_THAT(s.why_not, HasSubstr("m/config.json: quantization_config is"));
  EXPECT_THAT(lines(s), ElementsAre("2 x full 4/4 d16"));
}

// Keys that the file omits have the family's defaults, as in the engine.
TEST(AttentionShapes, ARefusedSettingLeavesTheFamilysLayers) {
  const std::string sizes = R"("vocab_size":128,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,
    "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512)";
  const AttentionShapes gemma = shapes_of(R"({"architectures":["Gemma2ForCausalLM"],"model_type":"gemma2",
    "hidden_activation":"quick_gelu",)" + sizes +
                                          "}");
  EXPECT_THAT(gemma.why_not, HasSubstr("hidden_activation is \"quick_gelu\""));
  EXPECT_THAT(lines(gemma),
              ElementsAre("2 x sliding_window 4/2 d256 left 4095 cap 50", "2 x full 4/2 d256 cap 50"));
  EXPECT_EQ(gemma.specs[0].scale, 0.0625f);
  EXPECT_THAT(
      lines(R"({"architectures":["Llama4ForCausalLM"],"model_type":"llama4_text","num_local_experts":2,
    "rope_scaling":{"type":"dynamic"},)" +
            sizes + "}"),
      ElementsAre("3 x chunked_local 4/2 d128 chunk 8192", "1 x full 4/2 d128"));
  EXPECT_EQ(
      refusal(R"({"architectures":["NovelModel"],"model_type":"gemma2","rms_norm_eps":-1,)" + sizes + "}"),
      "m/config.json: rms_norm_eps is -1; a number from 0.0 to 1.0 is needed");
}

TEST(AttentionShapes, LayersThatAFamilyLacksKeepItsHeads) {
  const std::string sizes = R"("vocab_size":128,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":512,)";
  const std::string linear = R"("layer_types":["linear_attention","full_attention"]})";
  const AttentionShapes oss = shapes_of(R"({"model_type":"gpt_oss","num_local_experts":4,"rope_scaling":{
    "type":"yarn","factor":32},)" + sizes +
                                        linear);
  EXPECT_THAT(lines(oss), ElementsAre("1 x full 4/2 d64 sink"));
  EXPECT_EQ(oss.other_layers, 1);
  EXPECT_THAT(lines(R"({"model_type":"qwen3",)" + sizes + linear), ElementsAre("1 x full 4/2 d128"));
  const AttentionShapes both_ways =
      shapes_of(R"({"model_type":"gemma3_text","use_bidirectional_attention":true,"sliding_window":8,)" +
                sizes + R"("layer_types":["sliding_attention","full_attention"]})");
  EXPECT_THAT(lines(both_ways), ElementsAre("1 x encoder 4/2 d256 left 4 right 4 encoder_only non-causal",
                                            "1 x encoder 4/2 d256 encoder_only non-causal"));
  EXPECT_EQ(both_ways.specs[0].scale, 0.0625f);
  EXPECT_THAT(both_ways.notes, IsEmpty());
  EXPECT_THAT(
      lines(R"({"architectures":["JinaBertModel"],"model_type":"bert","position_embedding_type":"alibi",
    "vocab_size":128,"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
    "max_position_embeddings":512})"),
      ElementsAre("2 x encoder 4/4 d16 alibi encoder_only non-causal"));
}

constexpr char kDeepseek[] = R"("num_hidden_layers":61,"num_attention_heads":128,"num_key_value_heads":128,
    "vocab_size":129280,"max_position_embeddings":163840,"hidden_size":7168,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
    "torch_dtype":"bfloat16","rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":1.0})";

TEST(AttentionShapes, DeepseekIsOneLatentHead) {
  const AttentionShapes s =
      shapes_of(std::string(R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3",)") +
                kDeepseek + "}");
  EXPECT_THAT(lines(s), ElementsAre("61 x mla 128/1 d576/512 mla 128+64/128"));
  // YaRN: (0.1 ln 40 + 1)^2 / sqrt(192).
  EXPECT_NEAR(s.specs[0].scale, 0.1352338, 1e-6);
  EXPECT_TRUE(s.runnable);
  EXPECT_EQ(s.model_type, "deepseek_v3");
  // V2-Lite's mscale_all_dim.
  EXPECT_NEAR(shapes_of(R"({"model_type":"deepseek_v2","num_hidden_layers":27,"num_attention_heads":16,
                            "vocab_size":102400,"hidden_size":2048,"max_position_embeddings":163840,
                            "num_experts_per_tok":6,"q_lora_rank":null,
                            "kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
                            "rope_scaling":{"type":"yarn","factor":40,"mscale":0.707,"mscale_all_dim":0.707}})")
                  .specs.at(0)
                  .scale,
              0.1147214, 1e-6);
  EXPECT_NEAR(shapes_of(R"({"model_type":"kimi_k2","num_hidden_layers":61,"num_attention_heads":64,
                            "kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128})")
                  .specs.at(0)
                  .scale,
              1 / std::sqrt(192.0), 1e-6)
      << "without YaRN";
}

TEST(AttentionShapes, LongcatsLayersHaveTwoBlocksOfAttention) {
  const AttentionShapes s = shapes_of(
      R"({"architectures":["LongcatFlashForCausalLM"],"vocab_size":131072,"hidden_size":6144,
          "ffn_hidden_size":12288,"expert_ffn_hidden_size":2048,"num_layers":28,"num_attention_heads":64,
          "kv_lora_rank":512,"q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
          "mla_scale_q_lora":true,"mla_scale_kv_lora":true,"n_routed_experts":512,"zero_expert_num":256,
          "zero_expert_type":"identity","moe_topk":12,"routed_scaling_factor":6.0,"rope_theta":10000000.0,
          "max_position_embeddings":131072,"attention_method":"MLA","model_type":"longcat_flash"})");
  EXPECT_THAT(lines(s), ElementsAre("56 x mla 64/1 d576/512 mla 128+64/128"));
  EXPECT_TRUE(s.runnable);
}

TEST(AttentionShapes, AnIndexerMakesMlaSparse) {
  const AttentionShapes s =
      shapes_of(std::string(R"({"model_type":"deepseek_v32","index_topk":2048,)") + kDeepseek + "}");
  EXPECT_THAT(lines(s), ElementsAre("61 x sparse_mla 128/1 d576/512 mla 128+64/128"));
  EXPECT_TRUE(s.runnable);
  EXPECT_EQ(s.specs.front().sparse_topk, 2048);
  EXPECT_THAT(s.notes, ElementsAre(HasSubstr("an indexer chooses 2048 keys")));
  EXPECT_THAT(lines(R"({"model_type":"glm_moe_dsa","num_hidden_layers":78,"num_attention_heads":64,
      "vocab_size":154880,"hidden_size":6144,"max_position_embeddings":202752,
      "kv_lora_rank":512,"qk_nope_head_dim":192,"qk_rope_head_dim":64,"v_head_dim":256,"index_topk":2048})"),
              ElementsAre("78 x sparse_mla 64/1 d576/512 mla 192+64/256"));
  EXPECT_THAT(lines(R"({"model_type":"deepseek_v4","num_hidden_layers":43,"num_attention_heads":64,
      "num_key_value_heads":1,"head_dim":512,"index_topk":512,"sliding_window":128})"),
              ElementsAre("43 x sparse_mla 64/1 d512 mla 448+64/512 sink"));
}

TEST(AttentionShapes, GemmaMultimodalHasSpansInBothKinds) {
  const AttentionShapes s = shapes_of(R"({"architectures":["Gemma3ForConditionalGeneration"],
    "model_type":"gemma3","torch_dtype":"bfloat16","text_config":{"model_type":"gemma3_text",
    "hidden_size":2560,"intermediate_size":10240,"num_hidden_layers":34,"sliding_window":1024,
    "rope_scaling":{"factor":8.0,"rope_type":"linear"}},"vision_config":{"hidden_size":1152}})");
  EXPECT_THAT(lines(s),
              ElementsAre("29 x sliding_window 8/4 d256 left 1023 spans", "5 x full 8/4 d256 spans"));
  EXPECT_FLOAT_EQ(s.specs[0].scale, 0.0625f);
  EXPECT_EQ(s.specs[0].dtype, DType::bf16);
  EXPECT_THAT(s.notes, ElementsAre(HasSubstr("vision_config")));
  EXPECT_FALSE(s.runnable);
  // EmbeddingGemma: bidirectional, the window halved.
  EXPECT_THAT(lines(R"({"architectures":["Gemma3TextModel"],"model_type":"gemma3_text","hidden_size":768,
    "num_hidden_layers":24,"num_attention_heads":3,"num_key_value_heads":1,"head_dim":256,"vocab_size":262144,
    "intermediate_size":1152,"max_position_embeddings":2048,"sliding_window":512,
    "_sliding_window_pattern":6,"use_bidirectional_attention":true})"),
              ElementsAre("20 x encoder 3/1 d256 left 256 right 256 encoder_only non-causal",
                          "4 x encoder 3/1 d256 encoder_only non-causal"));
}

TEST(AttentionShapes, Gemma4HasOtherHeadsInFullLayersAndSharesKeys) {
  const AttentionShapes s = shapes_of(R"({"architectures":["Gemma4ForConditionalGeneration"],
    "model_type":"gemma4","text_config":{"model_type":"gemma4_text","num_hidden_layers":6,
    "num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"global_head_dim":512,
    "num_global_key_value_heads":2,"sliding_window":1024,"num_kv_shared_layers":2,
    "attention_k_eq_v":true,"use_bidirectional_attention":"vision","dtype":"bfloat16"}})");
  EXPECT_THAT(lines(s), ElementsAre("4 x sliding_window 8/4 d256 left 1023 spans",
                                    "1 x sliding_window 8/4 d256 left 1023 spans shared",
                                    "1 x full 8/2 d512 spans shared"));
  EXPECT_THAT(lines(R"({"model_type":"gemma4_text","num_hidden_layers":2,"num_global_key_value_heads":2,
    "layer_types":["sliding_attention","sliding_attention"]})"),
              ElementsAre("1 x sliding_window 8/4 d256 left 511", "1 x full 8/4 d512"))
      << "transformers' defaults; its kv heads only with attention_k_eq_v; the last layer is full";
  EXPECT_EQ(s.specs[0].scale, 1.0f);
  EXPECT_EQ(s.dtype, DType::bf16) << "of the text part, where the file has none of its own";
}

TEST(AttentionShapes, Llama4Multimodal) {
  EXPECT_THAT(lines(R"({"architectures":["Llama4ForConditionalGeneration"],"model_type":"llama4",
    "text_config":{"model_type":"llama4_text","vocab_size":202048,"hidden_size":5120,
    "intermediate_size":8192,"num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,
    "head_dim":128,"max_position_embeddings":131072,"num_local_experts":16,"num_experts_per_tok":1}})"),
              ElementsAre("36 x chunked_local 40/8 d128 chunk 8192", "12 x full 40/8 d128"));
}

TEST(AttentionShapes, QwenVisionModels) {
  EXPECT_THAT(lines(R"({"architectures":["Qwen2VLForConditionalGeneration"],"model_type":"qwen2_vl",
    "hidden_size":3584,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,
    "sliding_window":32768,"use_sliding_window":false,"max_window_layers":28,"vision_config":{"depth":32}})"),
              ElementsAre("28 x full 28/4 d128"));
  const AttentionShapes s = shapes_of(R"({"architectures":["Qwen3VLForConditionalGeneration"],
    "model_type":"qwen3_vl","vision_config":{"depth":24},"text_config":{"model_type":"qwen3_vl_text",
    "hidden_size":2560,"num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,
    "head_dim":128,"dtype":"bfloat16"}})");
  EXPECT_THAT(lines(s), ElementsAre("36 x full 32/8 d128"));
  EXPECT_THAT(s.notes, ElementsAre(HasSubstr("vision_config")));
}

TEST(AttentionShapes, MimoHasTwoSetsOfHeadsAndSinksInOne) {
  EXPECT_THAT(lines(R"({"model_type":"mimo_v2_flash","num_hidden_layers":6,"num_attention_heads":64,
    "hidden_size":4096,"num_key_value_heads":4,"head_dim":192,"v_head_dim":128,"swa_num_key_value_heads":8,
    "swa_head_dim":192,"swa_v_head_dim":128,"sliding_window":128,"hybrid_layer_pattern":[0,1,1,1,1,0],
    "add_swa_attention_sink_bias":true,"add_full_attention_sink_bias":false})"),
              ElementsAre("2 x full 64/4 d192/128", "4 x sliding_window 64/8 d192/128 left 127 sink"));
}

TEST(AttentionShapes, LinearLayersAreCountedAndNamed) {
  const std::string heads =
      R"("num_hidden_layers":8,"num_attention_heads":16,"num_key_value_heads":2,"hidden_size":2048)";
  const auto check = [&](const std::string& rest, int full, const std::string& note) {
    const AttentionShapes s = shapes_of("{" + heads + "," + rest + "}");
    ASSERT_EQ(s.specs.size(), 1u) << rest;
    EXPECT_EQ(s.layers[0], full) << rest;
    EXPECT_EQ(s.other_layers, 8 - full) << rest;
    EXPECT_THAT(s.notes, ElementsAre(HasSubstr(note))) << rest;
  };
  check(R"("model_type":"jamba","attn_layer_period":8,"attn_layer_offset":4)", 1, "7 of 8 layers are mamba");
  check(R"("model_type":"bamba","attn_layer_indices":[1,5])", 2, "6 of 8 layers are mamba");
  check(R"("model_type":"granitemoehybrid","layer_types":["mamba","mamba","attention","mamba","mamba","mamba",
        "mamba","attention"])",
        2, "6 of 8 layers are mamba");
  check(R"("model_type":"lfm2","layer_types":["conv","conv","full_attention","conv","conv","full_attention",
        "conv","conv"])",
        2, "6 of 8 layers are conv");
  const AttentionShapes nemotron =
      shapes_of("{" + heads + R"(,"model_type":"nemotron_h","hybrid_override_pattern":"M-M*M-M*"})");
  EXPECT_THAT(lines(nemotron), ElementsAre("2 x full 16/2 d128"));
  EXPECT_THAT(nemotron.notes, ElementsAre(HasSubstr("4 of 8 layers are mamba"), HasSubstr("2 of 8")));
  const AttentionShapes kimi = shapes_of(R"({"model_type":"kimi_linear","num_hidden_layers":4,
    "num_attention_heads":32,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
    "linear_attn_config":{"full_attn_layers":[4],"kda_layers":[1,2,3]}})");
  EXPECT_THAT(lines(kimi),
              ElementsAre("1 x mla 32/1 d576/512 mla 128+64/128", "3 x linear 32/32 d128 gated delta rule"));
  EXPECT_EQ(kimi.other_layers, 0);
  const AttentionShapes mamba = shapes_of(R"({"model_type":"mamba2","num_hidden_layers":64})");
  EXPECT_THAT(mamba.specs, IsEmpty());
  EXPECT_EQ(mamba.other_layers, 64);
}

TEST(AttentionShapes, LinearAttentionIsAKindOfItsOwn) {
  const std::string heads =
      R"("num_hidden_layers":8,"num_attention_heads":16,"num_key_value_heads":2,"hidden_size":2048)";
  const auto of = [&](const std::string& rest) { return shapes_of("{" + heads + "," + rest + "}"); };
  const std::string own =
      R"("linear_num_value_heads":32,"linear_key_head_dim":128,"linear_value_head_dim":256,"head_dim":256)";
  for (const char* layers :
       {R"("full_attention_interval":4)",
        R"("layer_types":["linear_attention","linear_attention","linear_attention","full_attention",
                          "linear_attention","linear_attention","linear_attention","full_attention"])"}) {
    const AttentionShapes s = of(R"("model_type":"qwen3_next",)" + own + "," + layers);
    EXPECT_THAT(lines(s), ElementsAre("2 x full 16/2 d256", "6 x linear 32/32 d128/256 gated delta rule"));
    EXPECT_EQ(s.other_layers, 0);
    EXPECT_THAT(s.notes, ElementsAre(HasSubstr("6 of 8 layers are linear")));
  }
  EXPECT_THAT(lines(of(R"("model_type":"minimax_text_01","attn_type_list":[0,0,0,0,0,0,0,1])")),
              ElementsAre("1 x full 16/2 d128", "7 x linear 16/16 d128 lightning"));
  EXPECT_EQ(of(R"("model_type":"jamba","attn_layer_period":8,"attn_layer_offset":4)").other_layers, 7);
}

TEST(AttentionShapes, Alibi) {
  EXPECT_THAT(lines(R"({"model_type":"bloom","n_layer":30,"n_head":32,"hidden_size":4096})"),
              ElementsAre("30 x full 32/32 d128 alibi"));
  EXPECT_THAT(lines(R"({"model_type":"mpt","n_layers":32,"n_heads":32,"d_model":4096,
                        "attn_config":{"alibi":true}})"),
              ElementsAre("32 x full 32/32 d128 alibi"));
  EXPECT_THAT(lines(R"({"model_type":"falcon","num_hidden_layers":24,"num_attention_heads":32,
                        "hidden_size":2048,"alibi":true,"multi_query":false})"),
              ElementsAre("24 x full 32/32 d64 alibi"));
  EXPECT_THAT(lines(R"({"model_type":"falcon","num_hidden_layers":32,"num_attention_heads":71,
                        "hidden_size":4544,"alibi":false,"multi_query":true,"num_kv_heads":71})"),
              ElementsAre("32 x full 71/1 d64"));
  EXPECT_THAT(lines(R"({"model_type":"falcon","num_hidden_layers":60,"num_attention_heads":128,
                        "hidden_size":8192,"new_decoder_architecture":true,"multi_query":true,
                        "num_kv_heads":8})"),
              ElementsAre("60 x full 128/8 d64"));
}

TEST(AttentionShapes, OtherDecoders) {
  EXPECT_THAT(lines(R"({"model_type":"phi","num_hidden_layers":32,"num_attention_heads":32,
                        "hidden_size":2560})"),
              ElementsAre("32 x full 32/32 d80"));
  EXPECT_THAT(lines(R"({"model_type":"starcoder2","num_hidden_layers":30,"num_attention_heads":24,
                        "num_key_value_heads":2,"hidden_size":3072,"sliding_window":4096})"),
              ElementsAre("30 x sliding_window 24/2 d128 left 4095"));
  EXPECT_THAT(lines(R"({"model_type":"cohere2","num_hidden_layers":32,"num_attention_heads":32,
                        "num_key_value_heads":8,"hidden_size":4096,"sliding_window":4096,
                        "sliding_window_pattern":4})"),
              ElementsAre("24 x sliding_window 32/8 d128 left 4095", "8 x full 32/8 d128"));
  EXPECT_THAT(lines(R"({"model_type":"gpt2","n_layer":12,"n_head":12,"n_embd":768})"),
              ElementsAre("12 x full 12/12 d64"));
  EXPECT_THAT(lines(R"({"model_type":"gpt_neo","num_layers":24,"num_heads":16,"hidden_size":2048,
                        "attention_types":[[["global","local"],12]],"window_size":256})"),
              ElementsAre("12 x full 16/16 d128", "12 x sliding_window 16/16 d128 left 255"));
  EXPECT_THAT(lines(R"({"model_type":"chatglm","num_layers":28,"num_attention_heads":32,"kv_channels":128,
                        "multi_query_attention":true,"multi_query_group_num":2,"hidden_size":4096})"),
              ElementsAre("28 x full 32/2 d128"));
  EXPECT_THAT(lines(R"({"model_type":"mllama","text_config":{"model_type":"mllama_text_model",
                        "num_hidden_layers":4,"num_attention_heads":32,"num_key_value_heads":8,
                        "hidden_size":4096,"cross_attention_layers":[3]}})"),
              ElementsAre("3 x full 32/8 d128", "1 x cross 32/8 d128 encoder_decoder non-causal"));
}

TEST(AttentionShapes, Encoders) {
  EXPECT_THAT(lines(R"({"architectures":["BertForQuestionAnswering"],"model_type":"bert","vocab_size":30522,
    "hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_attention_heads":12,
    "max_position_embeddings":512})"),
              ElementsAre("12 x encoder 12/12 d64 encoder_only non-causal"));
  EXPECT_THAT(lines(R"({"model_type":"modernbert","num_hidden_layers":22,"num_attention_heads":12,
    "hidden_size":768,"global_attn_every_n_layers":3,"local_attention":128})"),
              ElementsAre("8 x encoder 12/12 d64 encoder_only non-causal",
                          "14 x encoder 12/12 d64 left 64 right 64 encoder_only non-causal"));
}

TEST(AttentionShapes, EncoderDecoders) {
  const AttentionShapes whisper = shapes_of(R"({"architectures":["WhisperForConditionalGeneration"],
    "model_type":"whisper","d_model":384,"encoder_layers":4,"encoder_attention_heads":6,
    "encoder_ffn_dim":1536,"decoder_layers":4,"decoder_attention_heads":6,"decoder_ffn_dim":1536,
    "vocab_size":51865,"torch_dtype":"float16"})");
  EXPECT_TRUE(whisper.runnable);
  EXPECT_THAT(lines(whisper), ElementsAre("4 x full 6/6 d64", "4 x cross 6/6 d64 encoder_decoder non-causal",
                                          "4 x encoder 6/6 d64 encoder non-causal"));
  EXPECT_EQ(lines(whisper), lines(R"({"architectures":["MarianMTModel"],"model_type":"marian",
    "d_model":384,"encoder_layers":4,"encoder_attention_heads":6,"decoder_layers":4,
    "decoder_attention_heads":6})"));
  const AttentionShapes t5 =
      shapes_of(R"({"model_type":"t5","d_model":512,"d_kv":64,"num_heads":8,"num_layers":6})");
  EXPECT_THAT(lines(t5), ElementsAre("6 x full 8/8 d64", "6 x cross 8/8 d64 encoder_decoder non-causal",
                                     "6 x encoder 8/8 d64 encoder non-causal"));
  EXPECT_EQ(t5.specs[0].scale, 1.0f);
  EXPECT_THAT(t5.notes, ElementsAre(HasSubstr("learned bias by distance")));
}

TEST(AttentionShapes, UnknownTypesAreReadByTheUsualNamesAndSaySo) {
  const AttentionShapes s = shapes_of(R"({"architectures":["NovelForCausalLM"],"model_type":"novel",
    "num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":2,"hidden_size":512,
    "attn_logit_softcapping":30.0,"sliding_window":64,"layer_types":["sliding_attention","full_attention",
    "sliding_attention","full_attention"]})");
  EXPECT_THAT(lines(s), ElementsAre("2 x sliding_window 8/2 d64 left 63 cap 30", "2 x full 8/2 d64 cap 30"));
  EXPECT_THAT(s.notes,
              ElementsAre("model_type \"novel\" isn't known: its layers were read by the usual names "
                          "of the fields"));
}

TEST(AttentionShapes, RefusalsNameFileKeyAndValue) {
  EXPECT_EQ(refusal("[]"), "m/config.json: must hold a JSON object, {...}");
  EXPECT_EQ(refusal("{}"),
            "m/config.json: num_hidden_layers is missing; an integer from 1 to 10000 is needed");
  const auto with = [](const std::string& rest) {
    return refusal(R"({"model_type":"x","num_hidden_layers":2,"num_attention_heads":8,"hidden_size":512)" +
                   rest + "}");
  };
  EXPECT_EQ(with(""), "accepted");
  EXPECT_EQ(with(R"(,"num_key_value_heads":3)"),
            "m/config.json: num_key_value_heads is 3; it must divide the number of attention heads, 8");
  EXPECT_THAT(with(R"(,"head_dim":0)"), HasSubstr("head_dim is 0; an integer from 1 to 65536"));
  EXPECT_THAT(with(R"(,"head_dim":1e9)"), HasSubstr("head_dim is"));
  EXPECT_THAT(with(R"(,"num_key_value_heads":18446744073709551615)"), HasSubstr("num_key_value_heads is"));
  EXPECT_THAT(with(R"(,"layer_types":["full_attention"])"),
              HasSubstr("a list of one name for each of the 2"));
  EXPECT_THAT(with(R"(,"layer_types":["full_attention","odd"])"), HasSubstr("layer_types is"));
  EXPECT_THAT(with(R"(,"layer_types":["full_attention","sliding_attention"])"),
              HasSubstr("sliding_window is missing; layer 1 has a sliding window, which needs 1 or more"));
  EXPECT_THAT(with(R"(,"sliding_window":-1)"), HasSubstr("sliding_window is -1"));
  EXPECT_THAT(with(R"(,"attn_layer_indices":[2])"), HasSubstr("a list of layers from 0 to 1 is needed"));
  EXPECT_THAT(with(R"(,"torch_dtype":"float8_e4m3fn")"), HasSubstr("torch_dtype is"));
  EXPECT_THAT(with(R"(,"query_pre_attn_scalar":0)"), HasSubstr("query_pre_attn_scalar is 0"));
  EXPECT_THAT(refusal(R"({"text_config":{"num_hidden_layers":2}})"),
              HasSubstr("m/config.json: text_config: num_attention_heads is missing"));
  EXPECT_THAT(refusal(R"({"model_type":"deepseek_v3","num_hidden_layers":1,"num_attention_heads":65536,
                          "vocab_size":9,"hidden_size":8,"max_position_embeddings":9,"kv_lora_rank":512})"),
              HasSubstr("may be at most 16777216"));
  EXPECT_THAT(refusal(R"({"architectures":["LlamaForCausalLM"],"vocab_size":0})"),
              HasSubstr("vocab_size is 0"))
      << "an architecture that the engine runs is checked as it checks it";
}

TEST(AttentionShapes, Paths) {
  const std::string dir = ::testing::TempDir() + "attention_shapes";
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/config.json") << R"({"model_type":"gpt2","n_layer":1,"n_head":2,"n_embd":64})";
  for (const std::string& path : {dir, dir + "/config.json"}) {
    const auto shapes = read_attention_shapes(path);
    ASSERT_TRUE(shapes.ok()) << shapes.error().message;
    EXPECT_EQ(shapes->file, dir + "/config.json");
    EXPECT_THAT(lines(*shapes), ElementsAre("1 x full 2/2 d32"));
  }
  std::filesystem::remove(dir + "/config.json");
  EXPECT_THAT(read_attention_shapes(dir).error().message, HasSubstr("config.json: missing"));
  EXPECT_THAT(read_attention_shapes("/nowhere/at/all").error().message, HasSubstr("no such directory"));
}

}  // namespace
}  // namespace fovea
