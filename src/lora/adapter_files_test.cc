// Adapters in files: what is read, and one line that names the file and the key or tensor for what is not.
#include "lora/adapter_files.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <random>

#include "../tests/support/lora_adapter.h"
#include "lora/adapter_config.h"

namespace fovea {
namespace {

using test::AdapterOptions;
using test::SafetensorsWriter;
using test::TempDir;
using testing::HasSubstr;

LoraShape small_shape() {
  LoraShape shape;
  shape.hidden = 8;
  shape.q = 12;
  shape.kv = 4;
  shape.intermediate = 10;
  shape.dense_mlp = {true, false};
  return shape;
}

std::string config_error(const std::string& text) {
  const auto config = parse_adapter_config(text, "F");
  if (!config.ok()) return config.error().message;
  const auto rules = AdapterRules::create(*config);
  return rules.ok() ? "none" : rules.error().message;
}

std::string with(const std::string& member) {
  return R"({"r": 4, "target_modules": ["q_proj"])" + (member.empty() ? "" : ", " + member) + "}";
}

TEST(AdapterConfig, FieldsOfNoInfluenceAreIgnored) {
  EXPECT_EQ(config_error(with(R"("peft_type": "LORA", "task_type": "CAUSAL_LM", "lora_dropout": 0.5,
      "base_model_name_or_path": "x/y", "layers_to_transform": [0], "megatron_core": "megatron.core",
      "inference_mode": true, "fan_in_fan_out": false, "lora_bias": false, "modules_to_save": [],
      "a_field_of_the_future": null, "another": {}, "init_lora_weights": true, "use_dora": false)")),
            "none");
  EXPECT_EQ(config_error(with(R"("init_lora_weights": "gaussian", "task_type": null)")), "none");
}

TEST(AdapterConfig, RefusalsNameTheField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("peft_type": "LOHA")", "peft_type is \"LOHA\""},
      {R"("task_type": "SEQ_CLS")", "task_type is \"SEQ_CLS\""},
      {R"("bias": "all")", "bias is \"all\""},
      {R"("use_dora": true)", "use_dora is true; DoRA"},
      {R"("modules_to_save": ["lm_head"])", "modules_to_save is [\"lm_head\"]"},
      {R"("init_lora_weights": "pissa")", "init_lora_weights is \"pissa\""},
      {R"("fan_in_fan_out": true)", "fan_in_fan_out is true; this field is not supported"},
      {R"("layer_replication": [[0, 1]])", "layer_replication"},
      {R"("a_field_of_the_future": 1)", "a_field_of_the_future is 1"},
      {R"("use_rslora": 1)", "use_rslora is 1"},
      {R"("lora_alpha": "8")", "lora_alpha is \"8\""},
      {R"("lora_alpha": 1e300)", "lora_alpha is 1e+300"},
      {R"("rank_pattern": {"q_proj": 0})", "rank_pattern"},
      {R"("rank_pattern": {"q_proj": 1.5})", "rank_pattern"},
      {R"("rank_pattern": [])", "rank_pattern"},
      {R"("alpha_pattern": {"q_proj": "x"})", "alpha_pattern"},
      {R"("alpha_pattern": {"(": 1})", "alpha_pattern has the pattern \"(\""},
      {R"("rank_pattern": {"(a)\\1": 1})", "rank_pattern has the pattern"},
  };
  for (const auto& [member, text] : cases)
    EXPECT_THAT(config_error(with(member)), testing::AllOf(testing::StartsWith("F: "), HasSubstr(text)));
  EXPECT_THAT(config_error("[]"), HasSubstr("object"));
  EXPECT_THAT(config_error(R"({"target_modules": ["q_proj"]})"), HasSubstr("r is missing"));
  EXPECT_THAT(config_error(R"({"r": 513, "target_modules": ["q_proj"]})"), HasSubstr("r is 513"));
  EXPECT_THAT(config_error(R"({"r": 1})"), HasSubstr("target_modules is missing"));
  for (const char* targets : {"[]", "\"\"", "[1]", "[\"\"]", "3", "{}"})
    EXPECT_THAT(config_error(R"({"r": 1, "target_modules": )" + std::string(targets) + "}"),
                HasSubstr("target_modules is "));
}

TEST(AdapterRules, TargetsAndPatternsAreThoseOfPeft) {
  const auto rules_of = [](const std::string& text) {
    auto config = parse_adapter_config(text, "F");
    EXPECT_TRUE(config.ok());
    auto rules = AdapterRules::create(*config);
    EXPECT_TRUE(rules.ok());
    return *std::move(rules);
  };
  AdapterRules list = rules_of(R"({"r": 4, "target_modules": ["q_proj", "layers.1.mlp.up_proj", "none"]})");
  EXPECT_TRUE(*list.targets("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(*list.targets("model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(*list.targets("model.layers.11.mlp.up_proj"));
  EXPECT_FALSE(*list.targets("model.layers.0.self_attn.xq_proj"));
  EXPECT_EQ(list.unmatched(), std::vector<std::string>{"none"});

  AdapterRules regex = rules_of(R"({"r": 4, "target_modules": ".*layers\\.[02]\\..*(q|v)_proj"})");
  EXPECT_TRUE(*regex.targets("model.layers.2.self_attn.v_proj"));
  EXPECT_FALSE(*regex.targets("model.layers.1.self_attn.v_proj"));
  EXPECT_FALSE(*regex.targets("model.layers.0.self_attn.v_proj.more"));

  AdapterRules patterns = rules_of(R"({"r": 4, "lora_alpha": 8, "target_modules": "all-linear",
      "rank_pattern": {"q_proj": 16, "^model.layers.1.mlp.up_proj": 2, "layers.0.self_attn.q_proj": 16},
      "alpha_pattern": {"layers\\.1\\..*": 32}})");
  EXPECT_TRUE(*patterns.targets("anything"));
  EXPECT_EQ(patterns.module("model.layers.0.self_attn.q_proj")->rank, 16);
  EXPECT_EQ(patterns.module("model.layers.0.self_attn.q_proj")->scale, 0.5f);
  EXPECT_EQ(patterns.module("model.layers.1.mlp.up_proj")->rank, 2);
  EXPECT_EQ(patterns.module("model.layers.1.mlp.up_proj")->scale, 16.0f);
  EXPECT_EQ(patterns.module("x.model.layers.1.mlp.up_proj")->rank, 4);
  EXPECT_EQ(patterns.module("model.layers.11.mlp.down_proj")->scale, 2.0f);

  AdapterRules rslora =
      rules_of(R"({"r": 16, "lora_alpha": 8, "use_rslora": true, "target_modules": ["q"]})");
  EXPECT_EQ(rslora.module("q")->scale, 2.0f);
  AdapterRules both = rules_of(R"({"r": 4, "target_modules": ["q"], "rank_pattern": {"q": 1, ".*": 2}})");
  EXPECT_THAT(both.module("q").error().message, HasSubstr("both match"));
}

class AdapterFiles : public testing::Test {
 protected:
  std::string error(const std::string& header_and_data) {
    temp_.write(
        "x/adapter_config.json",
        R"({"r": 2, "target_modules": ["q_proj", "gate_proj", "down_proj", "lm_head", "embed_tokens"]})");
    temp_.write("x/adapter_model.safetensors", header_and_data);
    const auto read = read_lora_adapter(temp_.path() + "/x", small_shape(), 64);
    return read.ok() ? "none" : read.error().message;
  }
  static void add(SafetensorsWriter& writer, const std::string& name, int64_t rows, int64_t columns,
                  DType dtype = DType::f32) {
    writer.add(name, {rows, columns}, std::vector<float>(static_cast<size_t>(rows * columns), 1), dtype);
  }
  /// A good adapter of q_proj, and one more tensor.
  std::string error_with(const std::string& name, int64_t rows, int64_t columns) {
    SafetensorsWriter writer;
    add(writer, kQ + ".lora_A.weight", 2, 8);
    add(writer, kQ + ".lora_B.weight", 12, 2);
    add(writer, name, rows, columns);
    return error(writer.bytes());
  }

  const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj";
  TempDir temp_;
};

TEST_F(AdapterFiles, ReadsEveryModuleIntoItsPlace) {
  AdapterOptions options;
  options.rank = 3;
  options.targets = "\"all-linear\"";
  const std::string layer = "model.layers.0.", other = "model.layers.1.self_attn.";
  (void)write_adapter(temp_, "a",
                      {{layer + "self_attn.q_proj", {12, 8}},
                       {layer + "self_attn.v_proj", {4, 8}},
                       {layer + "mlp.up_proj", {10, 8}},
                       {layer + "mlp.down_proj", {8, 10}},
                       {other + "k_proj", {4, 8}},
                       {other + "o_proj", {8, 12}}},
                      options);
  const auto read = read_lora_adapter(temp_.path() + "/a", small_shape(), 3);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->rank, 3);
  const LoraWeights& qkv = read->at(0, LoraSite::qkv);
  ASSERT_EQ(qkv.modules.size(), 2u);
  EXPECT_EQ(qkv.a.n(), 6);
  EXPECT_EQ(qkv.modules[0].first_output, 0);
  EXPECT_EQ(qkv.modules[1].first_output, 16);
  EXPECT_EQ(qkv.modules[1].first_rank, 3);
  EXPECT_EQ(qkv.modules[1].scale, 2.0f);
  EXPECT_EQ(read->at(0, LoraSite::gate_up).modules[0].first_output, 10);
  EXPECT_EQ(read->at(0, LoraSite::down).a.k(), 10);
  EXPECT_TRUE(read->at(0, LoraSite::o).empty());
  EXPECT_EQ(read->at(1, LoraSite::qkv).modules[0].first_output, 12);
  EXPECT_EQ(read->at(1, LoraSite::o).modules[0].b.n(), 8);
}

TEST_F(AdapterFiles, RefusalsNameTheTensor) {
  const std::string layer = "base_model.model.model.layers.0.";
  EXPECT_EQ(error_with(layer + "mlp.gate_proj.lora_A.weight", 2, 8),
            temp_.path() +
                "/x/adapter_model.safetensors: module model.layers.0.mlp.gate_proj has no lora_B; "
                "save the adapter again");
  EXPECT_THAT(error_with(layer + "self_attn.k_proj.lora_A.weight", 2, 8),
              HasSubstr("that target_modules of adapter_config.json doesn't name"));
  EXPECT_THAT(error_with("base_model.model.lm_head.lora_A.weight", 2, 8), HasSubstr("can't be adapted"));
  EXPECT_THAT(error_with("base_model.model.model.layers.1.mlp.gate_proj.lora_A.weight", 2, 8),
              HasSubstr("can't be adapted"));
  for (const char* number : {"2", "00", "-1", "99999999999999999999", "", "0x"})
    EXPECT_THAT(
        error_with("base_model.model.model.layers." + std::string(number) + ".mlp.gate_proj.lora_A.weight", 2,
                   8),
        HasSubstr("can't be adapted"));
  EXPECT_THAT(error_with("base_model.model.model.embed_tokens.lora_embedding_A", 2, 8),
              HasSubstr("adapts the embedding"));
  EXPECT_THAT(error_with(kQ + ".lora_magnitude_vector", 2, 8), HasSubstr("DoRA"));
  EXPECT_THAT(error_with("base_model.model.lm_head.modules_to_save.weight", 2, 8), HasSubstr("whole weight"));
  EXPECT_THAT(error_with(kQ + ".bias", 2, 8), HasSubstr("whole weight or bias"));
  EXPECT_THAT(error_with("other.lora_A.weight", 2, 8), HasSubstr("names are base_model.model."));
  EXPECT_THAT(error_with(kQ + ".lora_A.default.weight", 2, 8), HasSubstr("is given twice"));

  const auto pair = [&](int64_t a_rows, int64_t a_columns, int64_t b_rows, int64_t b_columns) {
    SafetensorsWriter writer;
    add(writer, kQ + ".lora_A.weight", a_rows, a_columns);
    add(writer, kQ + ".lora_B.weight", b_rows, b_columns);
    return error(writer.bytes());
  };
  EXPECT_EQ(pair(2, 8, 12, 2), "none");
  EXPECT_THAT(pair(3, 8, 12, 3), HasSubstr("has shape [3, 8]; [2, 8] is needed"));
  EXPECT_THAT(pair(8, 2, 12, 2), HasSubstr("has shape [8, 2]"));
  EXPECT_THAT(pair(2, 8, 2, 12), HasSubstr("has shape [2, 12]; [12, 2] is needed"));
  EXPECT_THAT(pair(2, 8, 13, 2), HasSubstr("has shape [13, 2]"));
  SafetensorsWriter bytes;
  bytes.add(kQ + ".lora_A.weight", "I8", {2, 8}, std::string(16, '\0'));
  EXPECT_THAT(error(bytes.bytes()), HasSubstr("has type I8; F32, F16 and BF16"));
  EXPECT_THAT(error(SafetensorsWriter().bytes()), HasSubstr("has no tensors"));
  EXPECT_THAT(error("short"), HasSubstr("adapter_model.safetensors"));
}

TEST_F(AdapterFiles, DamagedFilesAreReadOrRefused) {
  AdapterOptions options;
  options.targets = "\".*_proj\"";
  options.more = R"(,"rank_pattern":{"v_proj":4},"alpha_pattern":{".*":6})";
  (void)write_adapter(temp_, "good", {{"model.layers.0.self_attn.v_proj", {4, 8}}}, options);
  const auto text_of = [&](const std::string& name) {
    std::ifstream file(temp_.path() + "/good/" + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string config = text_of("adapter_config.json"), weights = text_of("adapter_model.safetensors");
  const size_t header = weights.find('}', weights.find("lora_B")) + 8;
  std::mt19937 rng(5);
  int good = 0;
  for (int i = 0; i < 120; ++i) {
    std::string first = config, second = weights;
    std::string& damaged = i % 2 == 0 ? first : second;
    const size_t at = rng() % (i % 2 == 0 ? first.size() : std::min(second.size(), header));
    if (i % 3 == 0)
      damaged.erase(at, rng() % 4);
    else
      damaged[at] = "0{}[],:\"9-\xff\0a_"[rng() % 15];
    temp_.write("x/adapter_config.json", first);
    temp_.write("x/adapter_model.safetensors", second);
    const auto read = read_lora_adapter(temp_.path() + "/x", small_shape(), 64);
    good += read.ok();
    if (read.ok())
      EXPECT_EQ(read->at(0, LoraSite::qkv).modules.size(), 1u);
    else
      EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }
  EXPECT_LT(good, 60);
}

TEST_F(AdapterFiles, FoldersAreChecked) {
  const auto read = [&](const std::string& name) {
    const auto adapter = read_lora_adapter(temp_.path() + "/" + name, small_shape(), 64);
    return adapter.ok() ? std::string("none") : adapter.error().message;
  };
  EXPECT_THAT(read("absent"), HasSubstr("no such directory"));
  temp_.write("empty/x", "");
  EXPECT_THAT(read("empty"), HasSubstr("adapter_config.json"));
  temp_.write("pickled/adapter_config.json", test::adapter_config({}));
  temp_.write("pickled/adapter_model.bin", "x");
  EXPECT_THAT(read("pickled"), HasSubstr("pickled adapters are not read"));
  AdapterOptions options;
  options.rank = 8;
  (void)write_adapter(temp_, "large", {{"model.layers.0.self_attn.q_proj", {12, 8}}}, options);
  EXPECT_EQ(read("large"), "none");
  const auto limited = read_lora_adapter(temp_.path() + "/large", small_shape(), 7);
  ASSERT_FALSE(limited.ok());
  EXPECT_THAT(limited.error().message, HasSubstr("--max-lora-rank 8"));
}

}  // namespace
}  // namespace fovea
