// Whole models with experts: weight bytes read per token, and batch invariance.
#include <gtest/gtest.h>

#include <string>

#include "model/model_test_support.h"

namespace fovea {
namespace {

struct Case {
  const char *name, *config;
  int dense_layers;
};

const Case kCases[] = {
    {"mixtral", R"("architectures":["MixtralForCausalLM"],"num_local_experts":5,"sliding_window":12)", 0},
    {"qwen3_moe",
     R"("architectures":["Qwen3MoeForCausalLM"],"num_experts":7,"num_experts_per_tok":3,
        "moe_intermediate_size":20,"mlp_only_layers":[1],"norm_topk_prob":true)",
     1},
    {"gpt_oss",
     R"("architectures":["GptOssForCausalLM"],"num_local_experts":5,"num_experts_per_tok":2,"sliding_window":12,
        "rope_scaling":{"rope_type":"yarn","factor":4,"truncate":false,
        "original_max_position_embeddings":32})",
     0},
};

class MoeModel : public testing::TestWithParam<Case> {
 protected:
  MoeModel() {
    const std::string text =
        R"({"vocab_size":77,"hidden_size":40,"intermediate_size":51,"num_hidden_layers":3,"head_dim":24,
            "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":4096,)" +
        std::string(GetParam().config) + "}";
    auto config = parse_model_config(text, "", "/m");
    EXPECT_TRUE(config.ok()) << config.error().message;
    config_ = *std::move(config);
    ThreadPool pool(2);
    Stream stream(pool);
    auto model = Model::load(
        config_, {.dir = "/nowhere", .dtype = DType::bf16, .dummy_weights = true, .seed = 3}, stream);
    EXPECT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
  }
  std::vector<int32_t> ids(int count, uint32_t seed) const {
    std::mt19937 rng(seed);
    std::vector<int32_t> out;
    for (int i = 0; i < count; ++i)
      out.push_back(static_cast<int32_t>(rng() % 77));
    return out;
  }
  std::vector<float> row(const std::vector<float>& logits, size_t i) const {
    const auto first = logits.begin() + static_cast<std::ptrdiff_t>(i) * config_.vocab_size;
    return {first, first + config_.vocab_size};
  }

  ModelConfig config_;
  std::unique_ptr<Model> model_;
};
INSTANTIATE_TEST_SUITE_P(Families, MoeModel, testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(MoeModel, ASequencesBitsAreItsOwn) {
  const auto a = ids(40, 1), b = ids(9, 2), c = ids(31, 3);
  test::Runner whole(*model_, 4, 1);
  const auto expected = whole.step({{0, a}});
  test::Runner batch(*model_, 7, 3);
  const auto with_others = batch.step({{1, b}, {0, a}, {2, c}});
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(row(with_others, b.size() + i), row(expected, i)) << i;
  test::Runner chunked(*model_, 1, 2);
  size_t done = 0;
  for (const size_t size : {1u, 17u, 1u, 21u}) {
    const std::vector<int32_t> chunk(a.begin() + static_cast<std::ptrdiff_t>(done),
                                     a.begin() + static_cast<std::ptrdiff_t>(done + size));
    const auto logits = chunked.step({{3, {c[done % c.size()]}}, {0, chunk}}, /*last_only=*/true);
    done += size;
    ASSERT_EQ(row(logits, 1), row(expected, done - 1)) << done;
  }
}

TEST_P(MoeModel, ATokenReadsItsExpertsOnly) {
  // Packing pads outputs to whole panels of 32.
  const auto panels = [](int64_t n) { return (n + 31) / 32 * 32; };
  const MoeConfig& moe = config_.moe;
  int64_t expert = 2 * (panels(2L * moe.intermediate_size) * 40 + panels(40) * moe.intermediate_size);
  if (moe.layout == MoeLayout::gpt_oss) expert += 4 * (2 * moe.intermediate_size + 40);
  const int64_t idle = (3 - GetParam().dense_layers) * (moe.num_experts - moe.experts_per_token) * expert;
  const int64_t embedding = 2 * panels(77) * 40, embedding_row = 2 * 40;
  EXPECT_EQ(model_->weight_bytes() - model_->weight_bytes_per_token(), idle + embedding - embedding_row);
}

}  // namespace
}  // namespace fovea
