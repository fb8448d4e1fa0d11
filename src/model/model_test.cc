#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/model_test_support.h"

namespace fovea {
namespace {

using test::Runner;

std::unique_ptr<Model> load(const ModelConfig& config, const std::string& dir,
                            std::optional<DType> dtype = {}) {
  ThreadPool pool(3);
  Stream stream(pool);
  auto model = Model::load(config, {.dir = dir, .dtype = dtype}, stream);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *std::move(model) : nullptr;
}

std::string load_error(const ModelConfig& config, const std::string& dir, std::optional<DType> dtype = {}) {
  ThreadPool pool(2);
  Stream stream(pool);
  auto model = Model::load(config, {.dir = dir, .dtype = dtype}, stream);
  EXPECT_FALSE(model.ok());
  if (model.ok()) return "";
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  return model.error().message;
}

std::vector<int32_t> tokens(int count, int vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab)));
  return ids;
}

testing::AssertionResult mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts)
    if (text.find(part) == std::string::npos)
      return testing::AssertionFailure() << "\"" << text << "\" doesn't mention \"" << part << "\"";
  return testing::AssertionSuccess();
}

struct Variant {
  const char* name;
  const char* architecture;
  DType dtype;
  bool tied, bias;
  RopeConfig rope;
};

const Variant kVariants[] = {
    {"llama_fp32_bias", "LlamaForCausalLM", DType::f32, false, true, {}},
    {"llama_bf16_llama3_tied",
     "LlamaForCausalLM",
     DType::bf16,
     true,
     false,
     {.theta = 5e5, .scaling = RopeScaling::llama3, .factor = 8, .original_max_position = 32}},
    {"llama_fp16_linear",
     "LlamaForCausalLM",
     DType::f16,
     false,
     false,
     {.scaling = RopeScaling::linear, .factor = 2}},
    {"qwen3_bf16_tied", "Qwen3ForCausalLM", DType::bf16, true, false, {.theta = 1e6}},
    {"qwen3_fp32", "Qwen3ForCausalLM", DType::f32, false, true, {.theta = 1e6}},
};

class ModelVariant : public testing::TestWithParam<Variant> {
 protected:
  ModelVariant() {
    const Variant& v = GetParam();
    config_ = test::tiny_config(v.architecture);
    config_.tie_word_embeddings = v.tied;
    config_.qkv_bias = config_.o_bias = config_.mlp_bias = v.bias;
    config_.ropes = {v.rope};
    weights_ = test::random_weights(config_, v.dtype, 1);
    test::write_weights(dir_, weights_, v.dtype);
    model_ = load(config_, dir_.path());
  }
  size_t vocab() const { return static_cast<size_t>(config_.vocab_size); }

  test::TempDir dir_;
  ModelConfig config_;
  test::Weights weights_;
  std::unique_ptr<Model> model_;
};

TEST_P(ModelVariant, MatchesThePlainForward) {
  const auto ids = tokens(41, config_.vocab_size, 2);
  const auto expected = test::ReferenceModel(config_, weights_).logits(ids);
  Runner runner(*model_, 4, 2);
  const auto logits = runner.step({{0, ids}});
  ASSERT_EQ(logits.size(), expected.size());
  double spread = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected[i], 2e-5 * std::max(1.0, std::fabs(expected[i]))) << i;
    spread = std::max(spread, std::fabs(expected[i]));
  }
  EXPECT_GT(spread, 1.0);  // otherwise the comparison is meaningless
}

TEST_P(ModelVariant, ARowsBitsDependOnItsSequenceOnly) {
  const auto a = tokens(23, config_.vocab_size, 3), b = tokens(9, config_.vocab_size, 4),
             c = tokens(31, config_.vocab_size, 5);
  Runner whole(*model_, 4, 1);
  const auto expected = whole.step({{0, a}});
  const auto row = [&](const std::vector<float>& logits, size_t i) {
    return std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(i * vocab()),
                              logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab()));
  };

  // Other sequences in the batch, threads, page size.
  Runner batch(*model_, 7, 3);
  const auto with_others = batch.step({{1, b}, {0, a}, {2, c}});
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(row(with_others, b.size() + i), row(expected, i)) << i;

  // Chunks, beside another sequence that decodes; logits of each chunk's last row only.
  Runner chunked(*model_, 1, 2);
  size_t done = 0;
  for (const size_t size : {1u, 5u, 1u, 16u}) {
    const std::vector<int32_t> chunk(a.begin() + static_cast<std::ptrdiff_t>(done),
                                     a.begin() + static_cast<std::ptrdiff_t>(done + size));
    const auto logits = chunked.step({{3, {c[done]}}, {0, chunk}}, /*last_only=*/true);
    done += size;
    ASSERT_EQ(logits.size(), 2 * vocab());
    ASSERT_EQ(row(logits, 1), row(expected, done - 1)) << done;
  }
}

TEST_P(ModelVariant, DescribesItself) {
  EXPECT_EQ(model_->config().vocab_size, config_.vocab_size);
  const AttentionSpec spec = attention_specs(model_->config()).front();
  EXPECT_EQ(spec.num_heads, 4);
  EXPECT_EQ(spec.num_kv_heads, 2);
  EXPECT_EQ(spec.head_dim, 24);
  EXPECT_EQ(spec.v_head_dim, 24);
  EXPECT_FLOAT_EQ(spec.scale, 1 / std::sqrt(24.0f));
  EXPECT_TRUE(spec.mask.causal);
  EXPECT_EQ(spec.dtype, DType::f32);
  // At least the checkpoint's own bytes; packing pads outputs to whole panels.
  int64_t bytes = 0;
  for (const auto& [name, t] : weights_)
    bytes += static_cast<int64_t>(t.values.size() * size_of(GetParam().dtype));
  EXPECT_GE(model_->weight_bytes(), bytes);
  EXPECT_LT(model_->weight_bytes(), 2 * bytes + 100'000);
  EXPECT_LE(model_->weight_bytes_per_token(), model_->weight_bytes() + 40 * 4);
  if (!GetParam().tied) {
    EXPECT_LT(model_->weight_bytes_per_token(), model_->weight_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ModelVariant, testing::ValuesIn(kVariants),
                         [](const auto& test) { return std::string(test.param.name); });

// One row's heads are as much work as a whole step of other models: threads split rows only, not heads.
TEST(ModelHeads, HundredsAreNormed) {
  ModelConfig config = test::tiny_config("Qwen3ForCausalLM");
  config.hidden_size = config.intermediate_size = 8;
  config.num_heads = 512;
  config.head_dim = 64;
  config.num_layers = 1;
  config.layers.resize(1);
  const test::TempDir dir;
  const auto weights = test::random_weights(config, DType::f32, 1);
  test::write_weights(dir, weights, DType::f32);
  const auto model = load(config, dir.path());
  ASSERT_TRUE(model);
  const auto ids = tokens(9, config.vocab_size, 2);
  const auto expected = test::ReferenceModel(config, weights).logits(ids);
  const auto logits = Runner(*model, 4, 3).step({{0, ids}});
  ASSERT_EQ(logits.size(), expected.size());
  for (size_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits[i], expected[i], 1e-4 * std::max(1.0, std::fabs(expected[i]))) << i;
}

class ModelLoad : public testing::Test {
 protected:
  ModelLoad() : config_(test::tiny_config("LlamaForCausalLM")) {
    weights_ = test::random_weights(config_, DType::bf16, 6);
  }
  std::vector<float> logits(Model& model) {
    Runner runner(model, 4, 2);
    return runner.step({{0, tokens(12, config_.vocab_size, 7)}});
  }
  // Two rows of one sequence through the layers, without logits.
  Status forward_two_rows(StepAttention& attention) {
    test::write_weights(dir_, weights_, DType::bf16);
    const auto model = load(config_, dir_.path());
    model->reserve(2, 1);
    ThreadPool pool(1);
    Stream stream(pool);
    FOVEA_TRY(cache, KvCache::create(kv_groups(config_, KvCacheDType::float32, KvLayout::hnd, 4), {4}));
    const std::vector<int32_t> positions = {0, 1};
    const std::vector<int64_t> slots = {0, 1};
    const std::vector<int32_t> ids = {1, 2};
    return model->forward({ids, positions, slots, {}, &attention, &cache}, nullptr, stream);
  }
  test::TempDir dir_;
  ModelConfig config_;
  test::Weights weights_;
};

TEST_F(ModelLoad, NoLogitRowsMeansNoLogits) {
  struct None : StepAttention {
    Status forward(int, const AttentionArgs&, Stream&) override { return {}; }
  } none;
  EXPECT_TRUE(forward_two_rows(none).ok());
}

TEST_F(ModelLoad, AnErrorOfTheAttentionEndsTheForwardPass) {
  struct Failing : StepAttention {
    Status forward(int index, const AttentionArgs&, Stream&) override {
      ++calls;
      return index == 1 ? Status(Error{ErrorCode::internal, "the launch failed"}) : Status();
    }
    int calls = 0;
  } failing;
  const Status status = forward_two_rows(failing);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "the launch failed");
  EXPECT_EQ(failing.calls, 2);
}

TEST_F(ModelLoad, A16BitCheckpointIsExactInFloat32) {
  test::write_weights(dir_, weights_, DType::bf16);
  const auto as_stored = load(config_, dir_.path()), wide = load(config_, dir_.path(), DType::f32);
  EXPECT_EQ(logits(*as_stored), logits(*wide));
  EXPECT_EQ(as_stored->weight_bytes(), wide->weight_bytes());  // still 16-bit
  EXPECT_EQ(wide->config().dtype, DType::f32);
}

TEST_F(ModelLoad, AFloat32CheckpointIsRoundedOnce) {
  const auto exact = test::random_weights(config_, DType::f32, 9);
  test::write_weights(dir_, exact, DType::f32);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    test::TempDir rounded;
    test::write_weights(rounded, exact, dtype);
    const auto a = load(config_, dir_.path(), dtype), b = load(config_, rounded.path());
    EXPECT_EQ(logits(*a), logits(*b));
    EXPECT_EQ(a->weight_bytes(), b->weight_bytes());
    EXPECT_NE(logits(*a), logits(*load(config_, dir_.path())));
  }
}

TEST_F(ModelLoad, OverflowInFloat16IsAnErrorThatNamesTheTensor) {
  for (const std::string name :
       {"model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"}) {
    auto weights = weights_;
    weights[name].values[5] = -65520.0f + 0.0f;
    weights[name].values[6] = 65519.0f;  // rounds to 65504
    test::write_weights(dir_, weights, DType::f32);
    EXPECT_TRUE(
        mentions(load_error(config_, dir_.path(), DType::f16), {name, "-65520", "float16", "bfloat16"}));
    weights[name].values[5] = -INFINITY;  // already infinite: kept
    test::write_weights(dir_, weights, DType::f32);
    EXPECT_TRUE(load(config_, dir_.path(), DType::f16));
  }
  auto weights = weights_;
  weights["lm_head.weight"].values[0] = 3.4e38f;
  test::write_weights(dir_, weights, DType::f32);
  EXPECT_TRUE(
      mentions(load_error(config_, dir_.path(), DType::bf16), {"lm_head.weight", "bfloat16", "float32"}));
}

TEST_F(ModelLoad, ShardsAndMixedTypesGiveTheSameBits) {
  test::write_weights(dir_, weights_, DType::bf16);
  const auto expected = logits(*load(config_, dir_.path()));
  test::TempDir sharded;
  test::SafetensorsWriter shards[3];
  std::string map;
  int i = 0;
  for (const auto& [name, t] : weights_) {
    const int shard = i++ % 3;
    // Values exact in bf16 are exact in fp32 too: q, k and v of one fused matrix differ in type.
    shards[shard].add(name, t.shape, t.values, shard == 1 ? DType::f32 : DType::bf16);
    map.append(map.empty() ? "" : ",")
        .append("\"" + name + "\":\"model-" + std::to_string(shard) + ".safetensors\"");
  }
  for (int s = 0; s < 3; ++s)
    sharded.write("model-" + std::to_string(s) + ".safetensors", shards[s].bytes(s));
  sharded.write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  EXPECT_EQ(logits(*load(config_, sharded.path())), expected);
}

TEST_F(ModelLoad, MissingAndMisshapenTensorsAreNamed) {
  const std::string q = "model.layers.2.self_attn.q_proj.weight";
  auto weights = weights_;
  weights.erase(q);
  test::write_weights(dir_, weights, DType::bf16);
  EXPECT_TRUE(mentions(load_error(config_, dir_.path()), {dir_.path(), q, "missing", "[96, 40]"}));

  weights = weights_;
  weights[q].shape = {40, 96};
  test::write_weights(dir_, weights, DType::bf16);
  EXPECT_TRUE(mentions(load_error(config_, dir_.path()), {q, "[40, 96]", "[96, 40]"}));

  weights[q].shape = {96 * 40};
  test::write_weights(dir_, weights, DType::bf16);
  EXPECT_TRUE(mentions(load_error(config_, dir_.path()), {q, "[3840]"}));

  weights = weights_;
  weights.erase("lm_head.weight");
  test::write_weights(dir_, weights, DType::bf16);
  EXPECT_TRUE(mentions(load_error(config_, dir_.path()), {"lm_head.weight", "tie_word_embeddings"}));

  test::SafetensorsWriter writer;
  for (const auto& [name, t] : weights_) {
    if (name == q) {
      writer.add(name, "I16", t.shape, test::encode(t.values, DType::bf16));
    } else {
      writer.add(name, t.shape, t.values, DType::bf16);
    }
  }
  dir_.write("model.safetensors", writer.bytes());
  EXPECT_TRUE(mentions(load_error(config_, dir_.path()), {q, "I16", "BF16"}));
}

TEST_F(ModelLoad, AConfigLargerThanTheCheckpointAllocatesNothing) {
  test::write_weights(dir_, weights_, DType::bf16);
  ModelConfig huge = config_;
  huge.vocab_size = 10'000'000;
  huge.hidden_size = 1 << 20;  // 40 TB of embedding
  EXPECT_TRUE(mentions(load_error(huge, dir_.path()), {"model.embed_tokens.weight", "[77, 40]"}));
}

TEST_F(ModelLoad, TiedModelsUseTheEmbeddingAndOthersTheirOwnHead) {
  config_.tie_word_embeddings = true;
  test::write_weights(dir_, weights_, DType::bf16);  // holds an lm_head, which a tied model ignores
  const auto with_head = logits(*load(config_, dir_.path()));
  auto weights = weights_;
  weights["lm_head.weight"] = weights["model.embed_tokens.weight"];
  test::write_weights(dir_, weights, DType::bf16);
  config_.tie_word_embeddings = false;
  EXPECT_EQ(logits(*load(config_, dir_.path())), with_head);
}

TEST_F(ModelLoad, DummyWeightsDependOnTheSeedOnly) {
  const auto dummy = [&](uint64_t seed, int threads, DType dtype) {
    ThreadPool pool(threads);
    Stream stream(pool);
    config_.dtype = dtype;
    auto model =
        Model::load(config_, {.dir = "/nowhere", .dtype = {}, .dummy_weights = true, .seed = seed}, stream);
    EXPECT_TRUE(model.ok());
    return logits(**model);
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto a = dummy(1, 1, dtype);
    EXPECT_TRUE(std::ranges::all_of(a, [](float x) { return std::isfinite(x); }));
    EXPECT_GT(std::ranges::max(a), 0.01f);
    EXPECT_EQ(a, dummy(1, 3, dtype));
    EXPECT_NE(a, dummy(2, 1, dtype));
  }
}

TEST_F(ModelLoad, SaysHowMuchIsRead) {
  test::write_weights(dir_, weights_, DType::bf16);
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<std::pair<int64_t, int64_t>> told;
  const auto model =
      Model::load(config_,
                  {.dir = dir_.path(),
                   .dtype = {},
                   .progress = [&](int64_t read, int64_t total) { told.emplace_back(read, total); }},
                  stream);
  ASSERT_TRUE(model.ok());
  ASSERT_GT(told.size(), 10u);  // one call per tensor
  EXPECT_EQ(told.front().first, 0);
  EXPECT_TRUE(std::ranges::is_sorted(told));
  for (const auto& [read, total] : told)
    EXPECT_EQ(total, told.back().second);
  EXPECT_GT(told[told.size() - 2].first, 0);
  EXPECT_LE(told[told.size() - 2].first, told.back().second);
  EXPECT_EQ(told.back().first, told.back().second);
}

TEST_F(ModelLoad, DummyWeightsThatDontFitAreRefused) {
  config_.vocab_size = 10'000'000;
  config_.hidden_size = 1 << 20;
  ThreadPool pool(1);
  Stream stream(pool);
  const auto model = Model::load(config_, {.dir = "/m", .dtype = {}, .dummy_weights = true}, stream);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::out_of_memory);
  EXPECT_TRUE(mentions(model.error().message, {"/m", "MiB"}));
}

}  // namespace
}  // namespace fovea
