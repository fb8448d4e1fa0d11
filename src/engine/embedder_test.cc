// The embedder on a tiny BERT with random weights: pooling, lengths, errors, and batch invariance.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "../tests/support/temp_dir.h"
#include "base/log.h"
#include "fovea/embed.h"

namespace fovea {
namespace {

constexpr char kConfig[] = R"({"architectures": ["BertModel"], "vocab_size": 12, "hidden_size": 48,
  "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 20})";

// Words and their ids; every text gets [CLS] before and [SEP] after it.
constexpr char kTokenizer[] = R"({"version": "1.0", "added_tokens": [
    {"id": 1, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
    {"id": 2, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
    "pair": [], "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
                                   "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}},
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
    "vocab": {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "c": 5, "d": 6}, "merges": []}})";

class EmbedderTest : public testing::Test {
 protected:
  EmbedderTest() {
    set_log_level(LogLevel::error);  // silences the tokenizer's warning that it knows seven letters only
    dir_.write("config.json", kConfig);
    dir_.write("tokenizer.json", kTokenizer);
    config_.model = dir_.path();
    config_.dummy_weights = true;
    config_.threads = 2;
  }
  ~EmbedderTest() override { set_log_level(LogLevel::warning); }
  std::unique_ptr<Embedder> make() {
    auto embedder = Embedder::create(config_);
    EXPECT_TRUE(embedder.ok()) << embedder.error().message;
    return embedder.ok() ? *std::move(embedder) : nullptr;
  }
  std::string create_error() {
    const auto embedder = Embedder::create(config_);
    return embedder.ok() ? "" : embedder.error().message;
  }
  test::TempDir dir_;
  EmbedConfig config_;
};

std::vector<float> one(Embedder& embedder, const std::vector<int32_t>& ids) {
  auto vectors = embedder.embed(std::span(&ids, 1));
  EXPECT_TRUE(vectors.ok()) << vectors.error().message;
  return vectors.ok() ? vectors->at(0) : std::vector<float>();
}

TEST_F(EmbedderTest, AnEmbeddingDependsOnItsInputOnly) {
  const std::vector<std::vector<int32_t>> inputs = {
      {1, 3, 4, 2}, {1, 2}, std::vector<int32_t>(20, 7), {5}, {1, 3, 4, 2}};
  for (const char* backend : {"CPU_ATTN", "TORCH_NATIVE"})
    for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last}) {
      config_.attention.backend = backend;
      config_.pooling = pooling;
      std::vector<std::vector<float>> alone;
      config_.threads = 1;
      const auto single = make();
      for (const auto& ids : inputs)
        alone.push_back(one(*single, ids));
      config_.threads = 3;
      for (const int rows : {1, 6, 512}) {  // one per pass, some per pass, all in one pass
        config_.max_batched_tokens = rows;
        const auto vectors = make()->embed(inputs);
        ASSERT_TRUE(vectors.ok());
        EXPECT_EQ(*vectors, alone) << backend << " " << rows;
      }
      EXPECT_NE(alone[0], alone[1]);
    }
}

TEST_F(EmbedderTest, PoolingsAgreeWhereTheyMust) {
  config_.pooling = Pooling::mean;
  const auto mean = make();
  config_.pooling = Pooling::cls;
  const auto cls = make();
  config_.pooling = Pooling::last;
  const auto last = make();
  EXPECT_EQ(one(*mean, {4}), one(*cls, {4}));
  EXPECT_EQ(one(*mean, {4}), one(*last, {4}));
  const auto m = one(*mean, {4, 5}), c = one(*cls, {4, 5}), l = one(*last, {4, 5});
  ASSERT_EQ(m.size(), 48u);
  EXPECT_NE(c, l);
  for (size_t d = 0; d < m.size(); ++d)
    EXPECT_NEAR(m[d], (c[d] + l[d]) / 2, 1e-6);
}

TEST_F(EmbedderTest, NormalisedVectorsHaveLengthOneAndTheSameDirection) {
  const auto raw = one(*make(), {3, 4, 5});
  config_.normalize = true;
  const auto unit = one(*make(), {3, 4, 5});
  double squares = 0, raw_squares = 0;
  for (size_t d = 0; d < raw.size(); ++d) {
    squares += unit[d] * unit[d];
    raw_squares += raw[d] * raw[d];
  }
  EXPECT_NEAR(squares, 1.0, 1e-6);
  EXPECT_GT(std::fabs(raw_squares - 1.0), 0.1);
  for (size_t d = 0; d < raw.size(); ++d)
    EXPECT_NEAR(unit[d] * std::sqrt(raw_squares), raw[d], 1e-5);
}

TEST_F(EmbedderTest, DefaultsComeFromTheModelsFiles) {
  EXPECT_EQ(make()->info().pooling, Pooling::mean);
  EXPECT_FALSE(make()->info().normalize);
  EXPECT_EQ(make()->info().max_seq_len, 20);
  EXPECT_NE(make()->info().pooling_why.find("the model has no modules.json"), std::string::npos);
  dir_.write("modules.json", R"([{"path": "", "type": "a.Transformer"}])");
  EXPECT_NE(make()->info().pooling_why.find("modules.json has no Pooling"), std::string::npos);
  std::filesystem::create_directories(dir_.path() + "/1_Pooling");
  dir_.write("modules.json",
             R"([{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"},
                                 {"path": "2", "type": "a.Normalize"}])");
  dir_.write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true})");
  dir_.write("sentence_bert_config.json", R"({"max_seq_length": 9})");
  auto embedder = make();
  EXPECT_EQ(embedder->info().pooling, Pooling::cls);
  EXPECT_TRUE(embedder->info().normalize);
  EXPECT_EQ(embedder->info().max_seq_len, 9);
  config_.pooling = Pooling::last;
  config_.normalize = false;
  config_.max_seq_len = 20;
  embedder = make();
  EXPECT_EQ(embedder->info().pooling, Pooling::last);
  EXPECT_FALSE(embedder->info().normalize);
  EXPECT_EQ(embedder->info().max_seq_len, 20);
}

TEST_F(EmbedderTest, TooLongTextsAreRefusedOrCutBetweenTheSpecialTokens) {
  config_.max_seq_len = 5;
  const auto embedder = make();
  EXPECT_EQ(*embedder->tokenize("abc", false), (std::vector<int32_t>{1, 3, 4, 5, 2}));
  size_t too_long = 0;
  const auto refused = embedder->tokenize("abcd", false, &too_long);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("6 tokens"), std::string::npos);
  EXPECT_EQ(too_long, 6u);
  EXPECT_EQ(refused.error().message.find("--truncate"), std::string::npos) << "a flag of one command";
  EXPECT_EQ(*embedder->tokenize("abcd", true), (std::vector<int32_t>{1, 3, 4, 5, 2}));
  EXPECT_EQ(*embedder->tokenize("dcba[SEP]aaa", true), (std::vector<int32_t>{1, 6, 5, 4, 2}));
}

TEST_F(EmbedderTest, WithoutATokenizerInputsAreIds) {
  std::filesystem::remove(dir_.path() + "/tokenizer.json");
  const auto embedder = make();
  EXPECT_EQ(one(*embedder, {3, 4}).size(), 48u);
  EXPECT_NE(embedder->tokenize("ab", false).error().message.find("no tokenizer.json"), std::string::npos);
  dir_.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\n");
  dir_.write("tokenizer_config.json", R"({"tokenizer_class": "BertTokenizer"})");
  EXPECT_EQ(*make()->tokenize("ab", false), (std::vector<int32_t>{2, 5, 3}));
  dir_.write("tokenizer.json", "nonsense");
  EXPECT_NE(create_error().find("tokenizer.json"), std::string::npos);
}

TEST_F(EmbedderTest, BadInputsAreRefused) {
  const auto embedder = make();
  for (const auto& [ids, part] : std::vector<std::pair<std::vector<int32_t>, std::string>>{
           {{}, "no tokens"},
           {{1, 12}, "token 1 is 12; this model's ids are 0 to 11"},
           {{-1}, "token 0 is -1"},
           {std::vector<int32_t>(21, 1), "21 tokens long; at most 20"}}) {
    const auto vectors = embedder->embed(std::span(&ids, 1));
    ASSERT_FALSE(vectors.ok());
    EXPECT_NE(vectors.error().message.find(part), std::string::npos) << vectors.error().message;
  }
  config_.max_seq_len = 21;
  EXPECT_NE(create_error().find("21; this model's maximum is 20"), std::string::npos);
  config_.max_seq_len = {};
  config_.attention.backend = "FLASH_ATTN";
  EXPECT_NE(create_error().find("FLASH_ATTN"), std::string::npos);
  config_.attention.backend = "";
  dir_.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 12, "hidden_size": 48,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 20})");
  EXPECT_NE(create_error().find("LlamaForCausalLM isn't an encoder"), std::string::npos);
}

}  // namespace
}  // namespace fovea
