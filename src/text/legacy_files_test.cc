#include "text/legacy_files.h"

#include <gtest/gtest.h>

#include "fovea/result.h"
#include "text/byte_level.h"
#include "text/json_value.h"
#include "text/tokenizer.h"

namespace fovea::text {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kBertVocab = "[PAD]\r\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nit\n##s\n\u00e9\nI";

TokenizerConfig config_of(const std::string& json) {
  auto config = parse_tokenizer_config(json);
  EXPECT_TRUE(config) << config.error().message;
  return config ? *config : TokenizerConfig();
}

std::unique_ptr<Tokenizer> load(const LegacyFiles& files, const std::string& config) {
  auto json = tokenizer_json_from(files, config_of(config));
  EXPECT_TRUE(json) << json.error().message;
  if (!json) return nullptr;
  auto tokenizer = Tokenizer::parse(*json, config);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer ? *std::move(tokenizer) : nullptr;
}

std::string error_of(const LegacyFiles& files, const std::string& config) {
  auto json = tokenizer_json_from(files, config_of(config));
  return json ? "no error" : json.error().message;
}

LegacyFiles byte_level_files(const std::vector<std::string>& more) {
  std::string vocab = "{";
  int id = 0;
  for (const std::string& token : more)
    vocab += "\"" + token + "\":" + std::to_string(id++) + ",";
  for (int byte = 0; byte < 256; ++byte) {
    const std::string_view spelling = byte_to_char(static_cast<uint8_t>(byte));
    vocab += std::string(byte ? "," : "") + (spelling == "\"" || spelling == "\\" ? "\"\\" : "\"") +
             std::string(spelling) + "\":" + std::to_string(id++);
  }
  return {.vocab_json = vocab + "}", .merges_txt = "#version: 0.2\ni t\n\u0120 it\n"};
}

TEST(LegacyFiles, BertVocabulary) {
  const LegacyFiles files{.vocab_txt = kBertVocab};
  auto uncased = load(files, R"({"tokenizer_class":"BertTokenizerFast"})");
  EXPECT_EQ(*uncased->encode("ITs [MASK]"), (Ids{2, 5, 6, 4, 3}));
  EXPECT_EQ(*uncased->encode("\u00e9"), (Ids{2, 1, 3})) << "the accent goes, and e is no token";
  EXPECT_TRUE(uncased->is_special(0));
  auto cased = load(files, R"({"tokenizer_class":"DistilBertTokenizer","do_lower_case":false})");
  EXPECT_EQ(*cased->encode("I \u00e9"), (Ids{2, 8, 7, 3}));
}

TEST(LegacyFiles, GptAndRoberta) {
  LegacyFiles gpt = byte_level_files({"it", "\u0120it", "<|endoftext|>"});
  auto gpt2 = load(gpt, R"({"tokenizer_class":"GPT2Tokenizer"})");
  EXPECT_EQ(*gpt2->encode("it it<|endoftext|>"), (Ids{0, 1, 2}));
  EXPECT_EQ(gpt2->decode(Ids{0, 1, 2}), "it it");
  EXPECT_EQ(*load(gpt, R"({"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true})")->encode("it"),
            Ids{1});
  auto roberta = load(byte_level_files({"<s>", "<pad>", "</s>", "<unk>", "<mask>", "it", "\u0120it"}),
                      R"({"tokenizer_class":"RobertaTokenizer"})");
  EXPECT_EQ(*roberta->encode("it it <mask>"), (Ids{0, 5, 6, 4, 2}));
}

TEST(LegacyFiles, ErrorsSayWhatIsMissing) {
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), message.npos) << message;
  };
  expect(error_of({}, ""), "tokenizer.json does not exist");
  expect(error_of({.has_sentencepiece_model = true}, ""), "tokenizer.model (SentencePiece) is not read");
  expect(error_of({.vocab_txt = kBertVocab}, ""), "tokenizer_class is not given");
  expect(error_of({.vocab_txt = kBertVocab}, R"({"tokenizer_class":"CtrlTokenizer"})"), "\"CtrlTokenizer\"");
  expect(error_of({.vocab_txt = "[UNK]\n"}, R"({"tokenizer_class":"BertTokenizer"})"),
         "has no token \"[PAD]\"");
  expect(error_of({.vocab_txt = "a\na\n"}, R"({"tokenizer_class":"BertTokenizer"})"), "\"a\" appears twice");
  expect(error_of({.vocab_txt = "\xFF"}, R"({"tokenizer_class":"BertTokenizer"})"), "not UTF-8");
  const auto gpt = [&](const std::string& vocab, const std::string& merges) {
    return error_of({.vocab_json = vocab, .merges_txt = merges}, R"({"tokenizer_class":"GPT2Tokenizer"})");
  };
  expect(gpt("[", ""), "vocab.json: not valid JSON");
  expect(gpt("[]", ""), "must hold an object");
  expect(gpt(R"({"a":-1})", ""), "an integer from 0");
  expect(gpt(R"({"a":1})", ""), "has no token \"<|endoftext|>\"");
  expect(gpt(R"({"a":1})", "\xFF"), "merges.txt is not UTF-8");
}

}  // namespace
}  // namespace fovea::text
