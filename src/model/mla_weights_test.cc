// Checkpoints of models with latent attention: FP8 blocks that a head's border cuts, layers that are not run,
// the router's bias, and files that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float8.h"
#include "model/mla_test_support.h"

namespace fovea {
namespace {

using ::testing::HasSubstr;

constexpr char kConfig[] = R"({"architectures":["DeepseekV3ForCausalLM"],"vocab_size":77,"hidden_size":40,
    "intermediate_size":51,"num_hidden_layers":2,"num_attention_heads":5,"q_lora_rank":26,"kv_lora_rank":140,
    "qk_nope_head_dim":14,"qk_rope_head_dim":8,"v_head_dim":18,"max_position_embeddings":512,"n_routed_experts":4,
    "num_experts_per_tok":2,"n_group":1,"topk_group":1,"moe_intermediate_size":22,"first_k_dense_replace":1,
    "num_nextn_predict_layers":1})";
constexpr char kKvB[] = "model.layers.1.self_attn.kv_b_proj.weight";

class MlaWeights : public testing::Test {
 protected:
  MlaWeights() : config_(*parse_model_config(kConfig, "", "/m")) {
    weights_ = test::random_mla_weights(config_, DType::bf16, 5);
  }

  Result<std::unique_ptr<Model>> load() { return load({}); }
  /// With further tensors, written as they are; they replace those of the same name.
  struct Raw {
    std::string name, type;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  Result<std::unique_ptr<Model>> load(const std::vector<Raw>& raw) {
    test::SafetensorsWriter writer;
    for (const auto& [name, t] : weights_)
      if (std::ranges::none_of(raw, [&](const Raw& r) { return r.name == name; }))
        writer.add(name, t.shape, t.values, DType::bf16);
    for (const Raw& r : raw)
      writer.add(r.name, r.type, r.shape, r.bytes);
    dir_.write("model.safetensors", writer.bytes());
    ThreadPool pool(2);
    Stream stream(pool);
    return Model::load(config_, {.dir = dir_.path(), .dtype = {}}, stream);
  }
  std::string refusal(const std::vector<Raw>& raw = {}) {
    const auto model = load(raw);
    return model ? "loaded" : model.error().message;
  }
  std::vector<float> logits(Model& model) const {
    auto specs = attention_specs(config_);
    for (AttentionSpec& spec : specs)
      spec.use_mla = false;
    return test::Runner(model, 4, 2, 4, make_torch_native, specs).step({{0, {3, 1, 4, 1, 5, 9, 2, 6}}});
  }

  ModelConfig config_;
  test::Weights weights_;
  test::TempDir dir_;
};

TEST_F(MlaWeights, WhatDoesNotFitIsRefusedByName) {
  EXPECT_EQ(refusal(), "loaded");
  auto whole = weights_;
  weights_.erase(kKvB);
  EXPECT_THAT(refusal(), HasSubstr("tensor \"" + std::string(kKvB) +
                                   "\" is missing; config.json requires it, with shape [160, 140]"));
  weights_ = whole;
  weights_[kKvB].shape = {140, 160};
  EXPECT_THAT(refusal(), HasSubstr("has shape [140, 160], but config.json requires [160, 140]"));
  weights_ = whole;
  weights_.erase("model.layers.1.mlp.gate.e_score_correction_bias");
  EXPECT_THAT(refusal(), HasSubstr("e_score_correction_bias\" is missing"));
}

TEST_F(MlaWeights, OnlyTheExtraLayersMayBeThereWithoutUse) {
  const auto& norm = weights_.at("model.norm.weight");
  weights_["model.layers.2.enorm.weight"] = norm;
  weights_["model.layers.2.shared_head.norm.weight"] = norm;
  EXPECT_EQ(refusal(), "loaded");
  weights_["model.layers.3.enorm.weight"] = norm;
  EXPECT_THAT(refusal(),
              HasSubstr("1 tensors that config.json does not account for (model.layers.3.enorm.weight)"));
  weights_.erase("model.layers.3.enorm.weight");
  config_.extra_layers = 0;
  EXPECT_THAT(refusal(), HasSubstr("2 tensors that config.json does not account for"));
}

// 128 rows are 4 heads of 32: the scales of block 1 begin at head 4. Columns have blocks of 128 and 12.
TEST_F(MlaWeights, Fp8BlocksAreDecodedBeforeHeadsAreCut) {
  const int64_t rows = 160, columns = 140;
  std::string codes;
  std::vector<float> scales = {0.25f, 0.5f, 0.125f, 1.0f};
  test::TensorValues& plain = weights_.at(kKvB);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const uint8_t code = float_to_e4m3(plain.values[static_cast<size_t>(i)] * 4);
    codes += static_cast<char>(code);
    const int64_t block = i / columns / 128 * 2 + i % columns / 128;
    plain.values[static_cast<size_t>(i)] = e4m3_to_float(code) * scales[static_cast<size_t>(block)];
  }
  const auto expected = logits(**load());
  const Raw weight{kKvB, "F8_E4M3", {rows, columns}, codes};
  const std::string name = std::string(kKvB) + "_scale_inv";
  const auto coded = load({weight, {name, "F32", {2, 2}, test::encode(scales, DType::f32)}});
  ASSERT_TRUE(coded.ok()) << coded.error().message;
  EXPECT_EQ(logits(**coded), expected);
  std::ranges::reverse(scales);
  EXPECT_NE(logits(**load({weight, {name, "F32", {2, 2}, test::encode(scales, DType::f32)}})), expected);
  scales.push_back(1);
  EXPECT_THAT(refusal({weight, {name, "F32", {5}, test::encode(scales, DType::f32)}}),
              HasSubstr("has shape [5]; for weights of 160 x 140"));
  EXPECT_THAT(refusal({weight}), HasSubstr("there is no tensor with its scales"));
}

// Rounded to bfloat16, two of the biases below would be equal.
TEST_F(MlaWeights, TheRoutersBiasKeepsItsType) {
  const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
  const std::vector<float> bias = {1.0f, 1.0f + 0x1p-20f, 0.0f, 1.0f};
  test::write_weights(dir_, weights_, DType::bf16);
  test::SafetensorsWriter writer;
  writer.add(name, {4}, bias, DType::f32);
  dir_.write("model.safetensors", writer.bytes());
  ThreadPool pool(1);
  auto checkpoint = Checkpoint::open(dir_.path());
  ASSERT_TRUE(checkpoint.ok());
  WeightReader reader(std::make_shared<Checkpoint>(*std::move(checkpoint)), nullptr, DType::bf16, pool);
  reader.exact_vector(name, 4, 0);
  reader.set_mode(WeightReader::Mode::load);
  const auto read = reader.exact_vector(name, 4, 0);
  EXPECT_TRUE(std::equal(bias.begin(), bias.end(), read.data(), read.data() + read.size()));
}

TEST_F(MlaWeights, DummyWeightsServeEveryTensor) {
  config_.quantization = {.fp8 = true, .blocks = true};
  ThreadPool pool(2);
  Stream stream(pool);
  const auto model = Model::load(
      config_, {.dir = "/nowhere", .dtype = DType::bf16, .dummy_weights = true, .seed = 3}, stream);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto row = logits(**model);
  EXPECT_TRUE(std::ranges::all_of(row, [](float x) { return std::isfinite(x); }));
  EXPECT_NE(row.front(), row.back());
}

// Matrices that a GPU reads slice by slice are those that the CPU packs.
TEST_F(MlaWeights, DescribedHeadsAreThoseOfThePackedOnes) {
  test::write_weights(dir_, weights_, DType::bf16);
  ThreadPool pool(2);
  auto checkpoint = Checkpoint::open(dir_.path());
  ASSERT_TRUE(checkpoint.ok());
  WeightReader reader(std::make_shared<Checkpoint>(*std::move(checkpoint)), nullptr, std::nullopt, pool);
  read_latent("model.layers.1.self_attn.", config_, reader);
  reader.set_mode(WeightReader::Mode::load);
  const LatentBlock packed = read_latent("model.layers.1.self_attn.", config_, reader);
  reader.set_mode(WeightReader::Mode::describe);
  const LatentBlock described = read_latent("model.layers.1.self_attn.", config_, reader);
  ASSERT_TRUE(reader.status().ok());
  const auto compare = [](const std::vector<Linear>& a, const std::vector<Linear>& b, int64_t n, int64_t k) {
    ASSERT_EQ(a.size(), 5u);
    for (size_t h = 0; h < a.size(); ++h) {
      ASSERT_EQ(a[h].weight.n(), n);
      ASSERT_EQ(b[h].weight.k(), k);
      std::vector<float> row(static_cast<size_t>(k)), read(row.size());
      for (int64_t r = 0; r < n; ++r) {
        a[h].weight.unpack_row(r, row.data());
        ASSERT_TRUE(
            b[h].weight.source()->read(r, 1, DType::f32, reinterpret_cast<std::byte*>(read.data())).ok());
        ASSERT_EQ(row, read) << "head " << h << " row " << r;
      }
    }
  };
  compare(packed.key_up, described.key_up, 140, 14);
  compare(packed.value_up, described.value_up, 18, 140);
}

}  // namespace
}  // namespace fovea
