#include "text/unigram.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace fovea::text {
namespace {

using Ids = std::vector<int32_t>;

Result<std::unique_ptr<TokenModel>> parse(std::string_view json) {
  auto spec = parse_json(json, "model");
  EXPECT_TRUE(spec);
  return parse_unigram(*spec);
}

Ids encode(std::string_view json, std::string_view piece) {
  auto model = parse(json);
  EXPECT_TRUE(model) << model.error().message;
  Ids ids;
  if (model) (*model)->encode(piece, ids);
  return ids;
}

std::string error_of(std::string_view json) {
  auto model = parse(json);
  return model ? "no error" : model.error().message;
}

TEST(Unigram, TakesTheLargestSum) {
  constexpr const char* kModel =
      R"({"unk_id":0,"vocab":[["?",0],["a",-1],["b",-1],["ab",-3],["aba",-2.5],["ba",-1.75]]})";
  EXPECT_EQ(encode(kModel, "ab"), (Ids{1, 2}));
  EXPECT_EQ(encode(kModel, "aba"), Ids{4});  // -2.5 against -2.75 for a + ba
  EXPECT_EQ(encode(kModel, "abab"), (Ids{4, 2}));
  EXPECT_EQ(encode(kModel, ""), Ids{});
}

TEST(Unigram, OfEqualsTheLongestLastTokenStays) {
  EXPECT_EQ(encode(R"({"unk_id":0,"vocab":[["?",0],["a",-1],["aa",-1]]})", "aaa"), (Ids{1, 2}));
}

TEST(Unigram, UnknownCharactersFuse) {
  constexpr const char* kVocab =
      R"("unk_id":0,"vocab":[["<unk>",0],["a",-1],["<0xC3>",-2],["<0xA9>",-2],["\u00e8x",-50]])";
  EXPECT_EQ(encode("{" + std::string(kVocab) + "}", "a\u00e9\u00e9za"), (Ids{1, 0, 1}));
  EXPECT_EQ(encode("{" + std::string(kVocab) + R"(,"byte_fallback":true})", "a\u00e9\u00e9a"),
            (Ids{1, 2, 3, 2, 3, 1}));
  EXPECT_EQ(encode("{" + std::string(kVocab) + R"(,"byte_fallback":true})", "\u00e9z"), Ids{0})
      << "z has no byte token";
  // The penalty is the smallest score minus 10: -60 a character.
  EXPECT_EQ(encode("{" + std::string(kVocab) + "}", "\u00e8x"), Ids{4});
  EXPECT_EQ(encode("{" + std::string(kVocab) + "}", "\u00e8<unk>"), Ids{0}) << "the token itself fuses too";
}

// Against a search over all segmentations.
TEST(Unigram, AgreesWithExhaustiveSearch) {
  const std::map<std::string, double> scores{{"a", -1.5},    {"b", -2},   {"ab", -3},
                                             {"ba", -3.125}, {"aab", -4}, {"bb", -4.25}};
  std::string json = R"({"unk_id":0,"vocab":[["?",-9])";
  Ids ids;
  for (const auto& [token, score] : scores)
    json += ",[\"" + token + "\"," + std::to_string(score) + "]";
  json += "]}";
  std::mt19937 rng(5);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (size_t n = 1 + rng() % 10; n > 0; --n)
      text += "abc"[rng() % 3];
    const std::function<double(std::string_view)> best = [&](std::string_view rest) {
      if (rest.empty()) return 0.0;
      double out = rest[0] == 'c' ? -19.0 + best(rest.substr(1)) : -INFINITY;
      for (const auto& [token, score] : scores) {
        if (rest.starts_with(token)) out = std::max(out, score + best(rest.substr(token.size())));
      }
      return out;
    };
    auto model = parse(json);
    ASSERT_TRUE(model);
    Ids got;
    (*model)->encode(text, got);
    double sum = 0;
    std::string spelled;
    size_t at = 0;
    for (const int32_t id : got) {
      if (id == 0) {
        for (; at < text.size() && text[at] == 'c'; ++at)
          sum -= 19;
        continue;
      }
      const auto token = (*model)->vocabulary().token(id);
      ASSERT_EQ(text.substr(at, token.size()), token);
      sum += scores.at(std::string(token));
      at += token.size();
    }
    EXPECT_EQ(at, text.size());
    EXPECT_DOUBLE_EQ(sum, best(text)) << text;
  }
}

TEST(Unigram, BadTablesAreErrors) {
  const auto contains = [](const std::string& message, std::string_view part) {
    return message.find(part) != message.npos ? std::string(part) : message;
  };
  const auto expect = [&](std::string_view json, std::string_view part) {
    EXPECT_EQ(contains(error_of(json), part), part) << json;
  };
  expect(R"({"unk_id":0})", "must be a list");
  expect(R"({"unk_id":0,"vocab":[]})", "not empty");
  expect(R"({"unk_id":0,"vocab":{"a":0}})", "must be a list");
  for (const char* entry : {"7", R"(["a"])", R"(["a","b"])", R"([1,2])", R"(["a",1,2])", R"(["a",null])"})
    expect(R"({"unk_id":0,"vocab":[)" + std::string(entry) + "]}", "vocab[0] must be [token, score]");
  expect(R"({"unk_id":0,"vocab":[["a",1e300]]})", "scores between");
  expect(R"({"unk_id":0,"vocab":[["a",-1000001]]})", "scores between");
  expect(R"({"unk_id":0,"vocab":[["a",0],["a",1]]})", "appears twice");
  expect(R"({"unk_id":0,"vocab":[[")" + std::string(1025, 'a') + R"(",0]]})", "a token of 1025 bytes");
  for (const char* id : {"1", "-1", "null", "\"0\"", "0.5", "99999999999"})
    expect(R"({"vocab":[["a",0]],"unk_id":)" + std::string(id) + "}", "an index into model.vocab is needed");
  expect(R"({"vocab":[["a",0]]})", "unk_id is missing");
}

}  // namespace
}  // namespace fovea::text
