// BERT, RoBERTa and DistilBERT against their definition in fp64, and bitwise invariance to batch and threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "model/encoder_test_support.h"

namespace fovea {
namespace {

using test::PlainLayers;
using test::Rows;

constexpr int kHidden = 48, kIntermediate = 51, kLayers = 2, kVocab = 77, kPositions = 40;

/// Tensor names of one architecture.
struct Spelling {
  const char* architecture;
  std::string prefix;                    ///< of every tensor
  std::string layers;                    ///< before the number of a layer
  std::array<std::string, 4> attention;  ///< q, k, v, out
  std::string attention_norm, in, out, mlp_norm;
  int offset;  ///< of positions
  bool types;
  double eps;
  std::string eps_text = "1e-12";
};

const Spelling kSpellings[] = {
    {"BertModel",
     "",
     "encoder.layer.",
     {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"},
     "attention.output.LayerNorm",
     "intermediate.dense",
     "output.dense",
     "output.LayerNorm",
     0,
     true,
     1e-12},
    {"BertForMaskedLM",
     "bert.",
     "encoder.layer.",
     {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"},
     "attention.output.LayerNorm",
     "intermediate.dense",
     "output.dense",
     "output.LayerNorm",
     0,
     true,
     1e-3,
     "1e-3"},
    {"XLMRobertaModel",
     "",
     "encoder.layer.",
     {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"},
     "attention.output.LayerNorm",
     "intermediate.dense",
     "output.dense",
     "output.LayerNorm",
     4,
     true,
     1e-5,
     "1e-5"},
    {"DistilBertModel",
     "distilbert.",
     "transformer.layer.",
     {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"},
     "sa_layer_norm",
     "ffn.lin1",
     "ffn.lin2",
     "output_layer_norm",
     0,
     false,
     1e-12},
};

std::string config_json(const Spelling& s) {
  const std::string head =
      std::string("{\"architectures\": [\"") + s.architecture + "\"], \"vocab_size\": 77, ";
  const std::string positions = "\"max_position_embeddings\": " + std::to_string(kPositions + s.offset);
  if (s.layers == "transformer.layer.")
    return head + positions + R"(, "dim": 48, "hidden_dim": 51, "n_layers": 2, "n_heads": 3})";
  return head + positions +
         R"(, "hidden_size": 48, "intermediate_size": 51, "num_hidden_layers": 2, "num_attention_heads": 3,
            "type_vocab_size": 2, "pad_token_id": 3, "layer_norm_eps": )" +
         s.eps_text + "}";
}

class EncoderModelTest : public testing::TestWithParam<Spelling> {
 protected:
  EncoderModelTest() : maker_(7) {
    const Spelling& s = GetParam();
    const std::string embeddings = s.prefix + "embeddings.";
    maker_.add(embeddings + "word_embeddings.weight", {kVocab, kHidden}, 0, 1);
    maker_.add(embeddings + "position_embeddings.weight", {kPositions + s.offset, kHidden}, 0, 1);
    if (s.types) maker_.add(embeddings + "token_type_embeddings.weight", {2, kHidden}, 0, 1);
    maker_.norm(embeddings + "LayerNorm", kHidden);
    for (int i = 0; i < kLayers; ++i) {
      for (const std::string& name : s.attention)
        maker_.linear(layer(i) + name, kHidden, kHidden);
      maker_.norm(layer(i) + s.attention_norm, kHidden);
      maker_.linear(layer(i) + s.in, kIntermediate, kHidden);
      maker_.linear(layer(i) + s.out, kHidden, kIntermediate);
      maker_.norm(layer(i) + s.mlp_norm, kHidden);
    }
  }
  std::string layer(int i) const { return GetParam().prefix + GetParam().layers + std::to_string(i) + "."; }

  void load() {
    test::write_weights(dir_, maker_.weights, DType::f32);
    auto config = parse_model_config(config_json(GetParam()), "", dir_.path());
    ASSERT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
    ThreadPool pool(2);
    Stream stream(pool);
    auto model = Model::load(config_, {.dir = dir_.path(), .dtype = {}}, stream);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    model_->reserve(256, 1);
  }

  /// [T, hidden] of every sequence, one after another.
  std::vector<float> encode(const std::vector<std::vector<int32_t>>& texts, bool cpu_attn, int threads,
                            std::vector<int32_t> types = {}) {
    std::vector<int> lengths;
    std::vector<int32_t> ids;
    for (const auto& text : texts) {
      lengths.push_back(static_cast<int>(text.size()));
      ids.insert(ids.end(), text.begin(), text.end());
    }
    const test::RaggedRows batch(lengths);
    ThreadPool pool(threads);
    Stream stream(pool);
    test::PlannedAttention attention(
        config_, cpu_attn, 16, [&](AttentionType) { return &batch.meta; }, stream);
    std::vector<float> hidden(ids.size() * kHidden, NAN);
    EncodeInput input;
    input.token_ids = ids;
    input.token_types = types;
    input.offsets = batch.offsets;
    input.attention = &attention;
    input.hidden = hidden.data();
    FOVEA_CHECK(model_->encode(input, stream).ok());
    return hidden;
  }

  Rows expected(const std::vector<int32_t>& ids, const std::vector<int32_t>& types) const {
    const Spelling& s = GetParam();
    const PlainLayers plain(maker_.weights);
    const std::string embeddings = s.prefix + "embeddings.";
    Rows x;
    int position = s.offset;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool padding = s.offset > 0 && ids[i] == 3;
      auto row = plain.table(embeddings + "word_embeddings.weight", ids[i]);
      const auto p =
          plain.table(embeddings + "position_embeddings.weight", padding ? s.offset - 1 : position++);
      for (size_t d = 0; d < row.size(); ++d)
        row[d] += p[d] + (s.types ? plain.table(embeddings + "token_type_embeddings.weight",
                                                types.empty() ? 0 : types[i])[d]
                                  : 0.0);
      x.push_back(plain.norm(embeddings + "LayerNorm", row, s.eps));
    }
    for (int i = 0; i < kLayers; ++i) {
      std::array<std::string, 4> names = s.attention;
      for (std::string& name : names)
        name = layer(i) + name;
      plain.block(x, layer(i) + s.attention_norm, false, s.eps,
                  [&](const Rows& in) { return plain.attention(names, in, in, 3, false); });
      plain.block(x, layer(i) + s.mlp_norm, false, s.eps,
                  [&](const Rows& in) { return plain.mlp(layer(i) + s.in, layer(i) + s.out, in); });
    }
    return x;
  }

  test::TempDir dir_;
  test::TensorMaker maker_;
  ModelConfig config_;
  std::unique_ptr<Model> model_;
};

std::vector<int32_t> some_ids(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(random() % kVocab));
  return ids;
}

TEST_P(EncoderModelTest, MatchesThePlainForward) {
  load();
  std::vector<int32_t> ids = some_ids(23, 1), types;
  ids[5] = ids[11] = 3;  // RoBERTa's padding
  if (GetParam().types)
    for (size_t i = 0; i < ids.size(); ++i)
      types.push_back(i >= 9);
  const Rows rows = expected(ids, types);
  for (const bool cpu_attn : {false, true}) {
    const std::vector<float> hidden = encode({ids}, cpu_attn, 2, types);
    for (size_t i = 0; i < hidden.size(); ++i)
      ASSERT_NEAR(static_cast<double>(hidden[i]), rows[i / kHidden][i % kHidden], 2e-5) << i;
  }
}

TEST_P(EncoderModelTest, ARowsBitsDependOnItsTextOnly) {
  load();
  const auto a = some_ids(13, 2), b = some_ids(kPositions, 3), c = some_ids(1, 4);
  for (const bool cpu_attn : {false, true}) {
    const std::vector<float> alone = encode({a}, cpu_attn, 1);
    const std::vector<float> together = encode({b, a, c, a}, cpu_attn, 3);
    const auto at = [&](size_t row) { return together.begin() + static_cast<std::ptrdiff_t>(row * kHidden); };
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at(b.size())));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), at(b.size() + a.size() + c.size())));
  }
}

TEST_P(EncoderModelTest, KnowsTensorFlowsNormNamesAndHeads) {
  load();
  const auto ids = some_ids(9, 5);
  const auto expected_bits = encode({ids}, false, 1);
  test::Weights renamed;
  for (auto& [name, tensor] : maker_.weights) {
    std::string to = name;
    if (const size_t at = to.find("LayerNorm.weight"); at != to.npos) to.replace(at, 16, "LayerNorm.gamma");
    if (const size_t at = to.find("LayerNorm.bias"); at != to.npos) to.replace(at, 14, "LayerNorm.beta");
    renamed[to] = tensor;
  }
  maker_.weights = renamed;
  load();
  EXPECT_EQ(encode({ids}, false, 1), expected_bits);
}

INSTANTIATE_TEST_SUITE_P(Architectures, EncoderModelTest, testing::ValuesIn(kSpellings),
                         [](const auto& variant) { return std::string(variant.param.architecture); });

std::string config_error(const std::string& extra) {
  const auto config = parse_model_config(
      R"({"architectures": ["BertModel"], "vocab_size": 9, "hidden_size": 48, "intermediate_size": 9,
          "num_hidden_layers": 1, "num_attention_heads": 3, "max_position_embeddings": 8)" +
          extra + "}",
      "", "m");
  return config.ok() ? "" : config.error().message;
}

TEST(BertConfig, RefusesByNameWhatItLacks) {
  EXPECT_EQ(config_error(""), "");
  for (const auto& [extra, named] : std::vector<std::pair<std::string, std::string>>{
           {R"(, "position_embedding_type": "relative_key")", "position_embedding_type is \"relative_key\""},
           {R"(, "is_decoder": true)", "is_decoder is true"},
           {R"(, "hidden_act": "quick_gelu")", "hidden_act is \"quick_gelu\""},
           {R"(, "num_key_value_heads": 1)", "num_key_value_heads is 1"},
           {R"(, "type_vocab_size": -1)", "type_vocab_size is -1"}})
    EXPECT_NE(config_error(extra).find(named), std::string::npos) << config_error(extra);
  const auto roberta = parse_model_config(
      R"({"architectures": ["RobertaModel"], "vocab_size": 9, "hidden_size": 48, "intermediate_size": 9,
          "num_hidden_layers": 1, "num_attention_heads": 3, "max_position_embeddings": 2})",
      "", "m");
  ASSERT_FALSE(roberta.ok());
  EXPECT_NE(roberta.error().message.find("max_position_embeddings is 2"), std::string::npos);
}

TEST(BertConfig, SaysWhatItIs) {
  const auto config = parse_model_config(
      R"({"model_type": "roberta", "vocab_size": 9, "hidden_size": 48, "intermediate_size": 9,
          "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 514})",
      "", "m");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->kind, ModelKind::encoder);
  EXPECT_EQ(config->max_position, 512);
  const auto specs = attention_specs(*config);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[1].type, AttentionType::encoder_only);
  EXPECT_FALSE(specs[1].mask.causal);
}

}  // namespace
}  // namespace fovea
