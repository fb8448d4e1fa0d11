#include "engine/sentence_transformers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "../tests/support/temp_dir.h"

namespace fovea {
namespace {

constexpr char kModules[] = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";

class SentenceTransformersTest : public testing::Test {
 protected:
  SentenceTransformersTest() { std::filesystem::create_directories(dir_.path() + "/1_Pooling"); }
  std::string error() const {
    const auto files = load_sentence_transformers(dir_.path());
    return files.ok() ? "" : files.error().message;
  }
  test::TempDir dir_;
};

TEST_F(SentenceTransformersTest, NothingIsNoError) {
  const auto files = load_sentence_transformers(dir_.path());
  ASSERT_TRUE(files.ok());
  EXPECT_FALSE(files->present || files->pooling || files->normalize || files->max_seq_len);
}

TEST_F(SentenceTransformersTest, ReadsPoolingNormalisationAndLength) {
  dir_.write("modules.json", kModules);
  dir_.write(
      "1_Pooling/config.json",
      R"({"word_embedding_dimension": 384, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  dir_.write("sentence_bert_config.json", R"({"max_seq_length": 256, "do_lower_case": false})");
  const auto files = load_sentence_transformers(dir_.path());
  ASSERT_TRUE(files.ok()) << files.error().message;
  EXPECT_TRUE(files->present && files->normalize);
  EXPECT_EQ(files->pooling, Pooling::cls);
  EXPECT_EQ(files->max_seq_len, 256);
}

TEST_F(SentenceTransformersTest, RefusesByNameWhatIsLacking) {
  dir_.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  const auto with = [&](const std::string& type, const std::string& path) {
    dir_.write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                                   {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                                   {"path": ")" +
                                   path + R"(", "type": ")" + type + "\"}]");
    return error();
  };
  EXPECT_NE(with("sentence_transformers.models.Dense", "2_Dense").find("module 2 is \"Dense\""),
            std::string::npos);
  EXPECT_NE(with("x.Normalize", "../../etc").find("plain name of a folder"), std::string::npos);
  EXPECT_EQ(with("sentence_transformers.base.modules.normalize.Normalize", "2_Normalize"), "");
  dir_.write("sentence_bert_config.json", R"({"do_lower_case": true})");
  EXPECT_NE(error().find("do_lower_case is true"), std::string::npos);
  dir_.write("sentence_bert_config.json", "{}");
  for (const char* bad : {"{}", "[7]", "nonsense", R"([{"type": 3}])"}) {
    dir_.write("modules.json", bad);
    EXPECT_NE(error().find("modules.json"), std::string::npos) << bad;
  }
}

TEST(PoolingConfig, KnowsFlagsAndNames) {
  EXPECT_EQ(*parse_pooling_config(R"({"pooling_mode": "mean"})", "p"), Pooling::mean);
  EXPECT_EQ(*parse_pooling_config(R"({"pooling_mode_lasttoken": true})", "p"), Pooling::last);
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {R"({"pooling_mode_max_tokens": true})", "p: the pooling is max; supported poolings are mean"},
           {R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})", "cls+mean"},
           {"{}", "missing"},
           {R"({"pooling_mode_mean_tokens": true, "include_prompt": false})", "include_prompt is false"},
           {R"({"pooling_mode_mean_tokens": 1})", "pooling_mode_mean_tokens is 1"}}) {
    const auto pooling = parse_pooling_config(text, "p");
    ASSERT_FALSE(pooling.ok()) << text;
    EXPECT_NE(pooling.error().message.find(part), std::string::npos) << pooling.error().message;
  }
}

}  // namespace
}  // namespace fovea
