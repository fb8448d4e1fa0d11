#include "text/word_piece.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea::text {
namespace {

using Ids = std::vector<int32_t>;

Ids encode(std::string_view json, std::string_view piece) {
  auto spec = parse_json(json, "model");
  EXPECT_TRUE(spec);
  auto model = parse_token_model(&*spec);
  EXPECT_TRUE(model) << model.error().message;
  Ids ids;
  if (model) (*model)->encode(piece, ids);
  return ids;
}

std::string error_of(std::string_view json) {
  auto spec = parse_json(json, "model");
  EXPECT_TRUE(spec);
  auto model = parse_token_model(&*spec);
  return model ? "no error" : model.error().message;
}

constexpr const char* kVocab =
    R"("unk_token":"?","vocab":{"?":0,"un":1,"una":2,"##aff":3,"##able":4,"##a":5,"##\u00e9":6,"able":7})";

TEST(WordPiece, TakesTheLongestAndContinues) {
  const std::string model = R"({"type":"WordPiece",)" + std::string(kVocab) + "}";
  EXPECT_EQ(encode(model, "unaffable"), Ids{0}) << "una leaves ffable, and nothing steps back";
  EXPECT_EQ(encode(model, "ununa"), Ids{0});
  EXPECT_EQ(encode(model, "ableaff\u00e9a"), (Ids{7, 3, 6, 5}));
  EXPECT_EQ(encode(model, "able##a"), Ids{0}) << "the prefix is no text";
  EXPECT_EQ(encode(model, ""), Ids{});
}

TEST(WordPiece, LongWordsAreUnknown) {
  const auto with = [](const char* limit) {
    return R"({"type":"WordPiece","max_input_chars_per_word":)" + std::string(limit) + "," + kVocab + "}";
  };
  EXPECT_EQ(encode(with("4"), "una\u00e9"), (Ids{2, 6})) << "characters, not bytes";
  EXPECT_EQ(encode(with("3"), "una\u00e9"), Ids{0});
  EXPECT_EQ(encode(with("null"), "una" + std::string(97, 'a')).size(), 98u);
  EXPECT_EQ(encode(with("null"), "una" + std::string(98, 'a')), Ids{0});
  EXPECT_NE(error_of(with("-1")).find("max_input_chars_per_word is -1"), std::string::npos);
}

TEST(WordPiece, BadTablesAreErrors) {
  EXPECT_NE(error_of(R"({"type":"WordPiece","vocab":{"a":0}})").find("WordPiece needs one"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"type":"WordPiece","vocab":{"a":0},"unk_token":"u"})").find("\"u\""),
            std::string::npos);
  EXPECT_NE(error_of(R"({"type":"WordPiece","unk_token":"u"})").find("vocab is missing"), std::string::npos);
  EXPECT_NE(error_of(R"({"type":"WordPiece","vocab":{"a":0,"b":0},"unk_token":"a"})").find("both have id 0"),
            std::string::npos);
}

TEST(WordLevel, LooksPiecesUp) {
  constexpr const char* kModel = R"({"type":"WordLevel","unk_token":"?","vocab":{"?":3,"a":1}})";
  EXPECT_EQ(encode(kModel, "a"), Ids{1});
  EXPECT_EQ(encode(kModel, "aa"), Ids{3});
  EXPECT_NE(error_of(R"({"type":"WordLevel","vocab":{"a":0}})").find("WordLevel needs one"),
            std::string::npos);
}

}  // namespace
}  // namespace fovea::text
