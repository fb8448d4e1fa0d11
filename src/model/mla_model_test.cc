// Models with latent attention: the absorbed forward against the un-absorbed definition in fp64, deviation by
// deviation; a sequence's bits in any company, pages and chunks; and checkpoints that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "model/mla_test_support.h"

namespace fovea {
namespace {

using test::Runner;
using ::testing::HasSubstr;

constexpr double kTolerance = 1e-4;  // relative to logits of 1 and more
constexpr int kTokens = 29;

struct Change {
  const char* name;
  std::function<void(ModelConfig&)> apply;
};

struct MlaCase {
  const char* name;
  const char* config;           ///< settings in addition to the common sizes
  std::vector<Change> changes;  ///< each must affect the logits
};

Change halves() {
  return {"halves instead of pairs", [](ModelConfig& c) { c.ropes[0].interleaved = false; }};
}
Change unscaled() {
  return {"no factor on the experts", [](ModelConfig& c) { c.moe.routed_scale = 1; }};
}

const MlaCase kCases[] = {
    {"v3",
     R"({"architectures":["DeepseekV3ForCausalLM"],"n_routed_experts":12,"num_experts_per_tok":4,"n_group":4,
         "topk_group":2,"n_shared_experts":1,"moe_intermediate_size":22,"first_k_dense_replace":1,
         "routed_scaling_factor":2.5,"rope_scaling":{"type":"yarn","factor":40,"mscale":1.0,"mscale_all_dim":1.0,
         "original_max_position_embeddings":16,"beta_fast":32,"beta_slow":1}})",
     {halves(),
      unscaled(),
      {"no YaRN in the scale of scores", [](ModelConfig& c) { c.attention_scale = 1 / std::sqrt(22.0); }},
      {"plain frequencies", [](ModelConfig& c) { c.ropes[0].scaling = RopeScaling::none; }},
      {"no groups", [](ModelConfig& c) { c.moe.groups = c.moe.top_groups = 1; }},
      {"groups by their best expert", [](ModelConfig& c) { c.moe.group_best = 1; }},
      {"no bias in the choice", [](ModelConfig& c) { c.moe.choice_bias = false; }},
      {"weights that do not sum to 1", [](ModelConfig& c) { c.moe.renormalize = false; }},
      {"softmax", [](ModelConfig& c) { c.moe.router = MoeRouter::softmax_then_top; }}}},
    {"kimi",
     R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"kimi_k2","n_routed_experts":9,
         "num_experts_per_tok":3,"n_group":1,"topk_group":1,"n_shared_experts":1,"moe_intermediate_size":22,
         "first_k_dense_replace":1,"routed_scaling_factor":2.827,"rope_theta":50000,"attention_bias":true})",
     {halves(), unscaled()}},
    {"v2",
     R"({"architectures":["DeepseekV2ForCausalLM"],"n_routed_experts":12,"num_experts_per_tok":3,"n_group":4,
         "topk_group":2,"n_shared_experts":2,"moe_intermediate_size":14,"first_k_dense_replace":1,
         "topk_method":"group_limited_greedy","routed_scaling_factor":16.0,"rope_scaling":{"type":"yarn",
         "factor":40,"mscale":0.707,"mscale_all_dim":0.707,"original_max_position_embeddings":16}})",
     {halves(),
      unscaled(),
      {"no groups", [](ModelConfig& c) { c.moe.groups = c.moe.top_groups = 1; }},
      {"weights that sum to 1", [](ModelConfig& c) { c.moe.renormalize = true; }},
      {"sigmoid", [](ModelConfig& c) { c.moe.router = MoeRouter::sigmoid_then_top; }}}},
    {"v2_lite",
     R"({"architectures":["DeepseekV2ForCausalLM"],"q_lora_rank":null,"n_routed_experts":7,
         "num_experts_per_tok":3,"n_shared_experts":2,"moe_intermediate_size":14,"first_k_dense_replace":1,
         "topk_method":"greedy","routed_scaling_factor":1.0,"moe_layer_freq":2})",
     {halves(), {"all experts' weights", [](ModelConfig& c) { c.moe.renormalize = true; }}}},
    {"glm4_moe_lite",
     R"({"architectures":["Glm4MoeLiteForCausalLM"],"n_routed_experts":8,"num_experts_per_tok":3,
         "n_shared_experts":1,"moe_intermediate_size":22,"mlp_layer_types":["dense","sparse","sparse"],
         "routed_scaling_factor":1.8,"rope_parameters":{"rope_type":"default","rope_theta":1000000}})",
     {halves(), unscaled()}},
    {"v32",
     R"({"architectures":["DeepseekV32ForCausalLM"],"n_routed_experts":8,"num_experts_per_tok":3,"n_group":1,
         "topk_group":1,"n_shared_experts":1,"moe_intermediate_size":22,"first_k_dense_replace":1,
         "index_topk":6,"index_n_heads":5,"index_head_dim":16})",
     {halves(),
      {"one key more", [](ModelConfig& c) { ++c.sparse_topk; }},
      {"all keys", [](ModelConfig& c) { c.sparse = false; }},
      {"an indexer's pairs instead of halves", [](ModelConfig& c) { c.indexer.interleaved = true; }},
      {"the first layer's choice", [](ModelConfig& c) { c.indexer.full = {true, false, false}; }}}},
    {"glm_dsa",
     R"({"architectures":["GlmMoeDsaForCausalLM"],"n_routed_experts":8,"num_experts_per_tok":3,
         "n_shared_experts":1,"moe_intermediate_size":22,"mlp_layer_types":["dense","sparse","sparse"],
         "index_topk":5,"index_n_heads":3,"index_head_dim":32,"index_topk_pattern":"FSF"})",
     {halves(),
      {"an indexer's halves instead of pairs", [](ModelConfig& c) { c.indexer.interleaved = false; }},
      {"own indexers", [](ModelConfig& c) { c.indexer.full = {true, true, true}; }},
      {"one indexer", [](ModelConfig& c) { c.indexer.full = {true, false, false}; }}}},
    {"longcat",
     R"({"architectures":["LongcatFlashForCausalLM"],"num_layers":2,"ffn_hidden_size":51,"n_routed_experts":6,
         "zero_expert_num":3,"moe_topk":4,"expert_ffn_hidden_size":22,"routed_scaling_factor":1.5})",
     {halves(),
      unscaled(),
      {"no factor on the queries' latent", [](ModelConfig& c) { c.mla.q_scale = 1; }},
      {"no factor on the latent", [](ModelConfig& c) { c.mla.kv_scale = 1; }},
      {"no bias in the choice", [](ModelConfig& c) { c.moe.choice_bias = false; }},
      {"weights that sum to 1", [](ModelConfig& c) { c.moe.renormalize = true; }},
      {"nothing from experts without weights", [](ModelConfig& c) { c.moe.identity_experts = 0; }},
      {"no experts in the first layer", [](ModelConfig& c) { c.layers[0].shortcut = false; }}}},
    {"minicpm3",
     R"({"architectures":["MiniCPM3ForCausalLM"],"scale_emb":1.5,"scale_depth":1.4,"dim_model_base":20,
         "rope_scaling":{"type":"longrope","short_factor":[1,1.1,1.2,1.3],"long_factor":[1,2,3,4],
         "original_max_position_embeddings":64}})",
     {{"pairs instead of halves", [](ModelConfig& c) { c.ropes[0].interleaved = true; }},
      {"short factors", [](ModelConfig& c) { fit_to_length(c, 64); }},
      {"embedding", [](ModelConfig& c) { c.embedding_scale = 1; }},
      {"residual", [](ModelConfig& c) { std::any_cast<GraniteSettings&>(c.family).residual_scale = 1; }},
      {"logits", [](ModelConfig& c) { std::any_cast<GraniteSettings&>(c.family).logit_scale = 1; }}}},
};

/// As the engine plans absorbed attention on a backend that has no MLA: ordinary heads with one KV head.
std::vector<AttentionSpec> plain_specs(const ModelConfig& config) {
  std::vector<AttentionSpec> specs = attention_specs(config);
  for (AttentionSpec& spec : specs)
    spec.use_mla = spec.use_sparse;
  return specs;
}

class MlaModel : public testing::TestWithParam<MlaCase> {
 protected:
  MlaModel() {
    auto json = nlohmann::json::parse(R"({"vocab_size":77,"hidden_size":40,"intermediate_size":51,
        "num_hidden_layers":3,"num_attention_heads":5,"q_lora_rank":26,"kv_lora_rank":20,"qk_nope_head_dim":14,
        "qk_rope_head_dim":8,"v_head_dim":18,"head_dim":8,"num_key_value_heads":5,"max_position_embeddings":4096,
        "rms_norm_eps":1e-5})");
    json.update(nlohmann::json::parse(GetParam().config));
    if (json["q_lora_rank"].is_null()) json["q_lora_rank"] = nullptr;
    auto config = parse_model_config(json.dump(), "", "/m");
    EXPECT_TRUE(config.ok()) << config.error().message;
    config_ = *std::move(config);
    weights_ = test::random_mla_weights(config_, DType::f32, 1);
    std::mt19937 rng(2);
    for (int i = 0; i < kTokens; ++i)
      ids_.push_back(static_cast<int32_t>(rng() % 77));
  }
  std::unique_ptr<Model> load(const test::Weights& weights) {
    test::write_weights(dir_, weights, DType::f32);
    ThreadPool pool(2);
    Stream stream(pool);
    auto model = Model::load(config_, {.dir = dir_.path(), .dtype = {}}, stream);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return *std::move(model);
  }
  Runner runner(Model& model, int page_size, int threads) const {
    return Runner(model, page_size, threads, 4,
                  config_.sparse ? make_torch_native_mla_sparse : make_torch_native, plain_specs(config_));
  }
  std::vector<float> row(const std::vector<float>& logits, size_t i) const {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(i) * config_.vocab_size;
    return {first, first + config_.vocab_size};
  }

  test::TempDir dir_;
  ModelConfig config_;
  test::Weights weights_;
  std::vector<int32_t> ids_;
};

TEST_P(MlaModel, MatchesTheUnabsorbedDefinition) {
  const auto expected = test::MlaReference(config_, weights_).logits(ids_);
  const auto model = load(weights_);
  const auto logits = runner(*model, 4, 2).step({{0, ids_}});
  ASSERT_EQ(logits.size(), expected.size());
  double spread = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected[i], kTolerance * std::max(1.0, std::fabs(expected[i])))
        << "row " << i / 77;
    spread = std::max(spread, std::fabs(expected[i]));
  }
  EXPECT_GT(spread, 1.0);  // otherwise the comparison is meaningless
}

// Prefill without absorption. More positions than are expanded at a time, in chunks that begin in any block,
// beside decodes and other prefills; bits are a row's own as long as a prefill computes it.
TEST_P(MlaModel, ExpandedPrefillMatchesAndHasBitsOfItsOwn) {
  if (config_.sparse) GTEST_SKIP() << "its prefill is absorbed";
  config_.mla.expanded_keys = ExpandedPrefill::kKeys;
  constexpr size_t kLong = ExpandedPrefill::kKeys + 40;
  std::mt19937 rng(3);
  while (ids_.size() < kLong)
    ids_.push_back(static_cast<int32_t>(rng() % 77));
  const auto expected = test::MlaReference(config_, weights_).logits(ids_);
  const auto model = load(weights_);
  const std::vector<int32_t> other(ids_.rbegin(), ids_.rbegin() + 9);
  std::vector<std::vector<float>> first;
  for (const bool company : {false, true}) {
    Runner runner = this->runner(*model, company ? 11 : 8, company ? 3 : 1);
    size_t done = 0;
    for (int step = 0; done < kLong; ++step) {
      const size_t size = std::min<size_t>(company ? std::array{1, 90, 7, 201}[step % 4] : 240, kLong - done);
      const auto at = ids_.begin() + static_cast<std::ptrdiff_t>(done);
      std::vector<Runner::Part> parts = {{0, {at, at + static_cast<std::ptrdiff_t>(size)}}};
      if (company) parts.insert(parts.begin(), {{1, {other[0]}}, {2, other}});
      // A part of one row would be a decode at the front.
      const auto logits = runner.step(parts);
      for (size_t i = 0; i < size; ++i) {
        const std::vector<float> got = row(logits, (company ? 10 : 0) + i);
        for (size_t v = 0; v < got.size(); ++v) {
          const double want = expected[(done + i) * 77 + v];
          ASSERT_NEAR(got[v], want, kTolerance * std::max(1.0, std::fabs(want))) << "row " << done + i;
        }
        if (company)
          ASSERT_EQ(got, first[done + i]) << done + i;
        else
          first.push_back(got);
      }
      done += size;
    }
  }
}

// The comparison above would fail if a deviation were lost.
TEST_P(MlaModel, EveryDeviationShows) {
  const auto expected = test::MlaReference(config_, weights_).logits(ids_);
  for (const Change& change : GetParam().changes) {
    ModelConfig changed = config_;
    change.apply(changed);
    const auto logits = test::MlaReference(changed, weights_).logits(ids_);
    double difference = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      difference = std::max(difference, std::fabs(logits[i] - expected[i]));
    EXPECT_GT(difference, 10 * kTolerance) << change.name;
  }
}

TEST_P(MlaModel, ASequencesBitsAreItsOwn) {
  const auto model = load(weights_);
  const auto expected = runner(*model, 4, 1).step({{0, ids_}});
  const std::vector<int32_t> other(ids_.rbegin(), ids_.rbegin() + 9);
  const auto company = runner(*model, 7, 3).step({{1, other}, {0, ids_}});
  for (size_t i = 0; i < ids_.size(); ++i)
    ASSERT_EQ(row(company, other.size() + i), row(expected, i)) << i;
  Runner chunked = runner(*model, 1, 2);
  size_t done = 0;
  for (const size_t size : {1u, 17u, 1u, 10u}) {
    const auto first = ids_.begin() + static_cast<std::ptrdiff_t>(done);
    const auto logits = chunked.step({{3, {other[done % 9]}}, {0, {first, first + static_cast<int>(size)}}},
                                     /*last_only=*/true);
    done += size;
    ASSERT_EQ(row(logits, 1), row(expected, done - 1)) << done;
  }
}

TEST_P(MlaModel, OneRecordPerTokenIsCached) {
  const auto groups = kv_groups(config_, KvCacheDType::bfloat16, KvLayout::hnd, 16);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].kind, KvKind::latent);
  const int64_t indexers = config_.sparse ? std::ranges::count(config_.indexer.full, true) : 0;
  EXPECT_EQ(groups[0].bytes_per_token(),
            config_.num_layers * 2 * (20 + 8) + indexers * 2 * config_.indexer.dim);
  const auto codes = kv_groups(config_, KvCacheDType::fp8_e4m3, KvLayout::hnd, 16);
  EXPECT_EQ(codes[0].bytes_per_token(), config_.num_layers * (20 + 8) + indexers * (config_.indexer.dim + 4));
  const AttentionSpec spec = attention_specs(config_).front();
  EXPECT_TRUE(spec.use_mla);
  EXPECT_EQ(spec.num_kv_heads, 1);
  EXPECT_EQ(spec.head_dim, 28);
  EXPECT_EQ(spec.v_head_dim, 20);
}

INSTANTIATE_TEST_SUITE_P(Families, MlaModel, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace fovea
