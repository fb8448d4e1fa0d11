#include "model/kv_scales.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/model_test_support.h"

namespace fovea {
namespace {

using test::SafetensorsWriter;
using test::TempDir;

constexpr int kLayers = 2;

std::string at(int layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + ".self_attn." + name;
}

/// Reads the scales of a checkpoint that `fill` writes.
Result<KvScales> read(const std::function<void(SafetensorsWriter&)>& fill, bool promised = false,
                      size_t* used = nullptr) {
  TempDir dir;
  SafetensorsWriter writer;
  writer.add("model.norm.weight", {2}, {1, 1}, DType::f32);
  fill(writer);
  dir.write("model.safetensors", writer.bytes(1));
  FOVEA_TRY(checkpoint, Checkpoint::open(dir.path()));
  std::vector<const CheckpointTensor*> tensors;
  auto scales = read_kv_scales(checkpoint, kLayers, promised, tensors);
  if (used != nullptr) *used = tensors.size();
  return scales;
}

std::string refusal(const std::function<void(SafetensorsWriter&)>& fill, bool promised = false) {
  const auto scales = read(fill, promised);
  EXPECT_FALSE(scales.ok());
  if (scales) return "accepted";
  EXPECT_EQ(scales.error().message.find('\n'), std::string::npos);
  return scales.error().message;
}

void expect_mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << '"' << text << "\" lacks \"" << part << '"';
}

TEST(KvScalesTest, EveryNameInUseIsFound) {
  const std::pair<const char*, const char*> names[] = {
      {"k_scale", "v_scale"},
      {"attn.k_scale", "attn.v_scale"},
      {"k_proj.k_scale", "v_proj.v_scale"},
      {"k_proj.output_scale", "v_proj.output_scale"},
      {"qkv_proj.k_scale", "qkv_proj.v_scale"},
  };
  for (const auto& [k, v] : names)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (const bool scalar : {false, true}) {
        size_t used = 0;
        const auto scales = read(
            [&](SafetensorsWriter& w) {
              for (int layer = 0; layer < kLayers; ++layer) {
                const auto n = static_cast<float>(layer);
                const std::vector<int64_t> shape = scalar ? std::vector<int64_t>{} : std::vector<int64_t>{1};
                w.add(at(layer, k), shape, {0.5f + n}, dtype);
                w.add(at(layer, v), shape, {0.25f + n}, dtype);
              }
            },
            true, &used);
        ASSERT_TRUE(scales.ok()) << scales.error().message;
        EXPECT_EQ(scales->k, (std::vector<float>{0.5f, 1.5f})) << k;
        EXPECT_EQ(scales->v, (std::vector<float>{0.25f, 1.25f})) << v;
        EXPECT_EQ(scales->summary(), "layers 0-1 (k 0.5..1.5, v 0.25..1.25)");
        EXPECT_EQ(used, 4u);
      }
}

TEST(KvScalesTest, OneScaleForBothAndNamesThatAgree) {
  const auto both = read([](SafetensorsWriter& w) {
    for (int layer = 0; layer < kLayers; ++layer)
      w.add(at(layer, "kv_scale"), {1}, {0.125f}, DType::f32);
  });
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(both->k, both->v);
  EXPECT_EQ(both->summary(), "layers 0-1 (k 0.125, v 0.125)");
  const auto add_twice = [](float second) {
    return [second](SafetensorsWriter& w) {
      for (int layer = 0; layer < kLayers; ++layer) {
        w.add(at(layer, "kv_scale"), {1}, {0.125f}, DType::f32);
        w.add(at(layer, "k_scale"), {1}, {layer == 1 ? second : 0.125f}, DType::f32);
      }
    };
  };
  EXPECT_TRUE(read(add_twice(0.125f)).ok());
  expect_mentions(refusal(add_twice(0.5f)), {at(1, "kv_scale"), "0.125", at(1, "k_scale"), "0.5", "agree"});
}

TEST(KvScalesTest, NoneIsFineUnlessPromised) {
  const auto none = read([](SafetensorsWriter&) {});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
  expect_mentions(refusal([](SafetensorsWriter&) {}, true),
                  {"model.safetensors", "kv_cache_scheme", "no KV scales"});
}

TEST(KvScalesTest, RefusesWhatIsNoScale) {
  const auto with = [](std::vector<int64_t> shape, std::vector<float> values) {
    return [shape, values](SafetensorsWriter& w) {
      for (int layer = 0; layer < kLayers; ++layer) {
        w.add(at(layer, "k_scale"), {1}, {1}, DType::f32);
        w.add(at(layer, "v_scale"), layer == 1 ? shape : std::vector<int64_t>{1},
              layer == 1 ? values : std::vector<float>{1}, DType::f32);
      }
    };
  };
  EXPECT_TRUE(read(with({1, 1}, {2})).ok());
  for (const float bad : {0.0f, -0.5f, INFINITY, std::numeric_limits<float>::quiet_NaN()})
    expect_mentions(refusal(with({1}, {bad})), {"model.safetensors: tensor \"" + at(1, "v_scale") + "\" is",
                                                "positive number", "or remove its scales"});
  expect_mentions(refusal(with({2}, {1, 1})), {at(1, "v_scale"), "has shape [2]", "scalar or shape [1]"});
  expect_mentions(refusal(with({0}, {})), {"has shape [0]"});
  expect_mentions(refusal([](SafetensorsWriter& w) { w.add(at(0, "k_scale"), "F8_E4M3", {1}, "x"); }),
                  {at(0, "k_scale"), "has dtype F8_E4M3", "F32, F16 or BF16"});
}

TEST(KvScalesTest, RefusesHalfOfThem) {
  expect_mentions(refusal([](SafetensorsWriter& w) { w.add(at(0, "v_scale"), {1}, {1}, DType::f32); }),
                  {at(0, "v_scale"), "no counterpart for K of layer 0"});
  for (const int layer : {0, 1})
    expect_mentions(refusal([layer](SafetensorsWriter& w) {
                      w.add(at(layer, "k_scale"), {1}, {1}, DType::f32);
                      w.add(at(layer, "v_scale"), {1}, {1}, DType::f32);
                    }),
                    {at(layer, "k_scale"), "layer " + std::to_string(1 - layer) + " has none"});
}

TEST(KvScalesTest, ModelLoadReadsThem) {
  ModelConfig config = test::tiny_config("LlamaForCausalLM");
  config.has_kv_scales = true;
  test::Weights weights = test::random_weights(config, DType::f32, 1);
  TempDir dir;
  test::write_weights(dir, weights, DType::f32);
  ThreadPool pool(1);
  Stream stream(pool);
  ModelLoadOptions options;
  options.dir = dir.path();
  EXPECT_FALSE(Model::load(config, options, stream).ok()) << "they are promised";
  for (int layer = 0; layer < config.num_layers; ++layer)
    for (const char* name : {"k_scale", "v_scale"})
      weights[at(layer, name)] = {{1}, {0.5f + static_cast<float>(layer)}};
  test::write_weights(dir, weights, DType::f32);
  const auto model = Model::load(config, options, stream);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->kv_scales().k, (std::vector<float>{0.5f, 1.5f, 2.5f}));
  options.dummy_weights = true;
  const auto dummy = Model::load(config, options, stream);
  ASSERT_TRUE(dummy.ok());
  EXPECT_TRUE((*dummy)->kv_scales().empty());
}

TEST(KvScalesTest, CacheScheme) {
  const auto scheme = [](const char* text) { return kv_cache_scheme(nlohmann::json::parse(text)); };
  const KvCacheScheme good = scheme(
      R"({"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme":
          {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false, "symmetric": true}})");
  EXPECT_TRUE(good.scales && good.only && good.problem.empty());
  const KvCacheScheme weights = scheme(
      R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {}}, "kv_cache_scheme":
          {"num_bits": 8, "type": "float"}})");
  EXPECT_TRUE(weights.scales && !weights.only);
  for (const char* other :
       {R"("num_bits": 4)", R"("type": "int")", R"("strategy": "channel")", R"("dynamic": true)"}) {
    const KvCacheScheme bad = scheme(
        ("{\"quant_method\": \"compressed-tensors\", \"kv_cache_scheme\": {" + std::string(other) + "}}")
            .c_str());
    EXPECT_FALSE(bad.scales) << other;
    EXPECT_FALSE(bad.problem.empty()) << other;
  }
  for (const char* none :
       {R"({"quant_method": "fp8"})", R"({"kv_cache_scheme": null})", "3", "[]", "\"x\""}) {
    EXPECT_FALSE(scheme(none).scales || scheme(none).only) << none;
  }
  EXPECT_FALSE(scheme(R"({"kv_cache_scheme": 8})").scales);
  EXPECT_FALSE(scheme(R"({"quant_method": ["compressed-tensors"], "kv_cache_scheme": {}})").only);
}

}  // namespace
}  // namespace fovea
