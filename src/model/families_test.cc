// Every dense family from its config.json: logits against the plain fp64 forward at window and chunk
// boundaries, with chunked prefill, on both backends; and that each of a family's deviations affects them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "model/model_test_support.h"

namespace fovea {
namespace {

using test::Runner;

constexpr int kWindow = 12;               // also the chunk of Llama 4
constexpr int kTokens = 2 * kWindow + 3;  // one more than 2 W, and a second decoded token
constexpr double kTolerance = 1e-4;       // relative to logits of 1 and more: fp32 sums of some 100 terms

struct Change {
  const char* name;
  std::function<void(ModelConfig&)> apply;
};

struct FamilyCase {
  const char* name;
  const char* config;           ///< settings in addition to the common sizes
  std::vector<Change> changes;  ///< each must affect the logits
};

template <class T>
T& own(ModelConfig& c) {
  return std::any_cast<T&>(c.family);
}

Change widen() {
  return {"a window wider by one", [](ModelConfig& c) {
            for (LayerConfig& layer : c.layers)
              if (layer.window > 0) ++layer.window;
          }};
}
Change other_layers_slide() {
  return {"windows in the other layers", [](ModelConfig& c) {
            for (LayerConfig& layer : c.layers)
              layer.window = layer.window > 0 ? 0 : kWindow;
          }};
}

const FamilyCase kCases[] = {
    {"qwen2_window",
     R"({"architectures":["Qwen2ForCausalLM"],"use_sliding_window":true,"sliding_window":12,
         "max_window_layers":2,"rope_scaling":{"type":"yarn","factor":4,
         "original_max_position_embeddings":16}})",
     {widen(),
      other_layers_slide(),
      {"no factor on cos and sin", [](ModelConfig& c) { c.ropes[0].attention_factor = 1; }},
      {"plain frequencies", [](ModelConfig& c) { c.ropes[0].scaling = RopeScaling::none; }}}},
    {"mistral", R"({"architectures":["MistralForCausalLM"],"sliding_window":12})", {widen()}},
    {"gemma2",
     R"({"architectures":["Gemma2ForCausalLM"],"sliding_window":12,
         "query_pre_attn_scalar":10,"attn_logit_softcapping":2.0,"final_logit_softcapping":4.0})",
     {widen(),
      other_layers_slide(),
      {"no cap of scores", [](ModelConfig& c) { c.attention_softcap = 0; }},
      {"no cap of logits", [](ModelConfig& c) { own<GemmaSettings>(c).logit_softcap = 0; }},
      {"the usual scale", [](ModelConfig& c) { c.attention_scale = 0; }},
      {"plain embeddings", [](ModelConfig& c) { c.embedding_scale = 1; }},
      {"norms by w", [](ModelConfig& c) { c.norm = NormKind::rms; }},
      {"silu", [](ModelConfig& c) { c.activation = Activation::silu; }},
      {"erf instead of tanh", [](ModelConfig& c) { c.activation = Activation::gelu; }}}},
    {"gemma3",
     R"({"architectures":["Gemma3ForCausalLM"],"sliding_window":12,"sliding_window_pattern":2,
         "query_pre_attn_scalar":30,"rope_theta":1000000,"rope_scaling":{"rope_type":"linear","factor":8},
         "rope_local_base_freq":10000})",
     {widen(),
      other_layers_slide(),
      {"one rotation for all", [](ModelConfig& c) { c.ropes[1] = c.ropes[0]; }},
      {"rotations swapped", [](ModelConfig& c) { std::swap(c.ropes[1], c.ropes[0]); }}}},
    {"olmo2",
     R"({"architectures":["Olmo2ForCausalLM"],"rms_norm_eps":1e-6})",
     {{"no norms of q and k", [](ModelConfig& c) { c.qk_norm = QkNorm::none; }}}},
    {"granite",
     R"({"architectures":["GraniteForCausalLM"],"embedding_multiplier":3.0,"residual_multiplier":0.6,
         "attention_multiplier":0.3,"logits_scaling":0.5,"attention_bias":true,"mlp_bias":true})",
     {{"embedding", [](ModelConfig& c) { c.embedding_scale = 1; }},
      {"residual", [](ModelConfig& c) { own<GraniteSettings>(c).residual_scale = 1; }},
      {"attention", [](ModelConfig& c) { c.attention_scale = 0; }},
      {"logits", [](ModelConfig& c) { own<GraniteSettings>(c).logit_scale = 1; }}}},
    {"phi3_long",
     R"({"architectures":["Phi3ForCausalLM"],"partial_rotary_factor":0.5,"sliding_window":12,
         "original_max_position_embeddings":16,"rope_scaling":{"type":"longrope",
         "short_factor":[1,1.1,1.2,1.3,1.4,1.5],"long_factor":[1,2,3,4,5,6]}})",
     {widen(),
      {"short factors", [](ModelConfig& c) { fit_to_length(c, 16); }},
      {"the whole head rotates",
       [](ModelConfig& c) {
         c.ropes[0].scaling = RopeScaling::none;
         c.ropes[0].rotary_dim = 24;
       }},
      {"no factor on cos and sin", [](ModelConfig& c) { c.ropes[0].attention_factor = 1; }}}},
    {"llama4",
     R"({"architectures":["Llama4ForCausalLM"],"attention_chunk_size":12,"moe_layers":[],
         "no_rope_layer_interval":2,"attn_scale":0.7,"floor_scale":5,"intermediate_size_mlp":51})",
     {{"a larger chunk",
       [](ModelConfig& c) {
         for (LayerConfig& layer : c.layers)
           layer.chunk = layer.chunk > 0 ? kWindow + 1 : 0;
       }},
      {"halves instead of pairs", [](ModelConfig& c) { c.ropes[0].interleaved = false; }},
      {"no sharpening", [](ModelConfig& c) { own<Llama4Settings>(c).temperature.scale = 0; }},
      {"no norm of q and k", [](ModelConfig& c) { c.qk_norm = QkNorm::none; }},
      {"rotation in all layers",
       [](ModelConfig& c) {
         for (LayerConfig& layer : c.layers)
           layer.rope = 0;
       }}}},
};

class FamilyTest : public testing::TestWithParam<FamilyCase> {
 protected:
  FamilyTest() {
    auto json = nlohmann::json::parse(R"({"vocab_size":77,"hidden_size":40,"intermediate_size":51,
        "num_hidden_layers":4,"num_attention_heads":4,"head_dim":24,"num_key_value_heads":2,
        "max_position_embeddings":4096,"tie_word_embeddings":true})");
    json.update(nlohmann::json::parse(GetParam().config));
    auto config = parse_model_config(json.dump(), "", "/m");
    EXPECT_TRUE(config.ok()) << config.error().message;
    config_ = *std::move(config);
    weights_ = test::random_weights(config_, DType::f32, 1);
    test::write_weights(dir_, weights_, DType::f32);
    std::mt19937 rng(2);
    for (int i = 0; i < kTokens; ++i)
      ids_.push_back(static_cast<int32_t>(rng() % 77));
    ThreadPool pool(2);
    Stream stream(pool);
    auto model = Model::load(config_, {.dir = dir_.path(), .dtype = {}}, stream);
    EXPECT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
  }

  std::vector<int32_t> part(int first, int count) const {
    return {ids_.begin() + first, ids_.begin() + first + count};
  }
  std::vector<float> row(const std::vector<float>& logits, int i) const {
    return {logits.begin() + i * config_.vocab_size, logits.begin() + (i + 1) * config_.vocab_size};
  }

  test::TempDir dir_;
  ModelConfig config_;
  test::Weights weights_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Model> model_;
};

// Row p gives the logits of a prompt of p + 1 tokens: covers all lengths up to 2 W + 1.
TEST_P(FamilyTest, MatchesThePlainForward) {
  const auto expected = test::ReferenceModel(config_, weights_).logits(ids_);
  for (const auto backend : {make_torch_native, make_cpu_attn}) {
    Runner runner(*model_, 4, 2, 4, backend);
    const auto logits = runner.step({{0, ids_}});
    ASSERT_EQ(logits.size(), expected.size());
    double spread = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], expected[i], kTolerance * std::max(1.0, std::fabs(expected[i])))
          << "row " << i / 77;
      spread = std::max(spread, std::fabs(expected[i]));
    }
    EXPECT_GT(spread, 1.0);  // otherwise the comparison is meaningless
  }
}

// A prompt that ends at a window or chunk boundary, and the token after it, alone and batched.
TEST_P(FamilyTest, PromptsThatEndAtAnEdge) {
  for (const auto backend : {make_torch_native, make_cpu_attn}) {
    Runner whole(*model_, 4, 1, 4, backend);
    const auto expected = whole.step({{0, ids_}});
    for (const int length : {kWindow - 1, kWindow, kWindow + 1, 2 * kWindow}) {
      Runner runner(*model_, 3, 3, 4, backend);
      runner.step({{1, part(3, 5)}});
      const auto prefill = runner.step({{0, part(0, 4)}, {1, part(1, 2)}}, /*last_only=*/true);
      EXPECT_EQ(row(prefill, 0), row(expected, 3));
      const auto prompt = runner.step({{1, part(2, 1)}, {0, part(4, length - 4)}}, /*last_only=*/true);
      EXPECT_EQ(row(prompt, 1), row(expected, length - 1)) << length;
      const auto decoded = runner.step({{0, part(length, 1)}, {1, part(0, 1)}});
      EXPECT_EQ(row(decoded, 0), row(expected, length)) << length;
    }
  }
}

// The comparison above would fail if a deviation were lost.
TEST_P(FamilyTest, EveryDeviationShows) {
  const auto expected = test::ReferenceModel(config_, weights_).logits(ids_);
  for (const Change& change : GetParam().changes) {
    ModelConfig changed = config_;
    change.apply(changed);
    const auto logits = test::ReferenceModel(changed, weights_).logits(ids_);
    double difference = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      difference = std::max(difference, std::fabs(logits[i] - expected[i]));
    EXPECT_GT(difference, 10 * kTolerance) << change.name;
  }
}

// Equal specs share a plan, and a layer's own window or chunk reaches its spec.
TEST_P(FamilyTest, AttentionSpecsFollowTheLayers) {
  const auto specs = attention_specs(model_->config());
  ASSERT_EQ(specs.size(), 4u);
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(specs[i].mask.window_left, config_.layers[i].window - 1);
    EXPECT_EQ(specs[i].mask.chunk, config_.layers[i].chunk);
    EXPECT_EQ(specs[i].softcap, config_.attention_softcap);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

// gpt-oss's sinks and window in the shared attention block, with a dense MLP.
TEST(AttentionBlockTest, SinksTakeTheirShare) {
  ModelConfig config = test::tiny_config("LlamaForCausalLM");
  config.sinks = true;
  config.layers[0].window = config.layers[2].window = 5;
  const auto weights = test::random_weights(config, DType::f32, 3);
  test::TempDir dir;
  test::write_weights(dir, weights, DType::f32);
  ThreadPool pool(2);
  Stream stream(pool);
  auto model = Model::load(config, {.dir = dir.path(), .dtype = {}}, stream);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
  const auto expected = test::ReferenceModel(config, weights).logits(ids);
  ModelConfig without = config;
  without.sinks = false;
  const auto other = test::ReferenceModel(without, weights).logits(ids);
  for (const auto backend : {make_torch_native, make_cpu_attn}) {
    Runner runner(**model, 4, 2, 4, backend);
    const auto logits = runner.step({{0, ids}});
    for (size_t i = 0; i < logits.size(); ++i)
      ASSERT_NEAR(logits[i], expected[i], kTolerance * std::max(1.0, std::fabs(expected[i]))) << i;
  }
  double difference = 0;
  for (size_t i = 0; i < other.size(); ++i)
    difference = std::max(difference, std::fabs(other[i] - expected[i]));
  EXPECT_GT(difference, 0.1);
}

// In a 16-bit type Gemma multiplies the embeddings by sqrt(hidden) as that type holds it.
TEST(GemmaTest, TheEmbeddingScaleIsRoundedToTheModelsType) {
  ModelConfig config = test::tiny_config("Gemma2ForCausalLM");
  config.embedding_scale = std::sqrt(1152.0f);  // 33.94
  for (const auto& [dtype, scale] : {std::pair{DType::bf16, 34.0f}, std::pair{DType::f16, 33.9375f},
                                     std::pair{DType::f32, config.embedding_scale}}) {
    ThreadPool pool(1);
    Stream stream(pool);
    const auto model =
        Model::load(config, {.dir = "/nowhere", .dtype = dtype, .dummy_weights = true}, stream);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ((*model)->config().embedding_scale, scale);
  }
}

}  // namespace
}  // namespace fovea
