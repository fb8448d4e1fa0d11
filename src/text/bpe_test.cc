#include "text/bpe.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

#include <random>

namespace fovea::text {
namespace {

std::unique_ptr<TokenModel> make(std::string_view json) {
  auto spec = parse_json(json, "model");
  EXPECT_TRUE(spec);
  auto model = parse_bpe(*spec);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *std::move(model) : nullptr;
}

std::string error_of(std::string_view json) {
  auto spec = parse_json(json, "model");
  EXPECT_TRUE(spec);
  auto model = parse_bpe(*spec);
  return model ? "no error" : model.error().message;
}

std::vector<int32_t> encode(const TokenModel& model, std::string_view piece) {
  std::vector<int32_t> ids;
  model.encode(piece, ids);
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Bpe, MergesBySmallestRankThenLeftmost) {
  auto model = make(R"({"vocab": {"a":0,"b":1,"c":2,"ab":3,"bc":4,"abc":5,"aa":6},
                        "merges": ["b c", ["a", "b"], "a bc", "a a"]})");
  EXPECT_EQ(encode(*model, "abc"), Ids{5});  // bc first, then a + bc
  EXPECT_EQ(encode(*model, "abab"), (Ids{3, 3}));
  EXPECT_EQ(encode(*model, "aaa"), (Ids{6, 0}));  // leftmost of equals
  EXPECT_EQ(encode(*model, ""), Ids{});
}

TEST(Bpe, UnknownCharacters) {
  constexpr const char* kVocab = R"("vocab": {"a":0,"?":1}, "merges": [])";
  EXPECT_EQ(encode(*make("{" + std::string(kVocab) + "}"), "axya"), (Ids{0, 0}));
  EXPECT_EQ(encode(*make("{" + std::string(kVocab) + R"(,"unk_token":"?"})"), "axya"), (Ids{0, 1, 1, 0}));
  EXPECT_EQ(encode(*make("{" + std::string(kVocab) + R"(,"unk_token":"?","fuse_unk":true})"), "axya"),
            (Ids{0, 1, 0}));
}

TEST(Bpe, UnknownCharactersFallBackToBytes) {
  constexpr const char* kRest =
      R"("vocab": {"?":0,"a":1,"<0xC3>":2,"<0xA9>":3,"<0xC3><0xA9>":4}, "merges": ["<0xC3> <0xA9>"],
         "unk_token":"?","fuse_unk":true)";
  const auto with = [&](const std::string& more) { return make("{" + std::string(kRest) + more + "}"); };
  EXPECT_EQ(encode(*with(""), "a\u00e9b"), (Ids{1, 0}));
  // Byte tokens take part in merges; a character with a byte that has no token is unknown as a whole.
  EXPECT_EQ(encode(*with(R"(,"byte_fallback":true)"), "a\u00e9\u00e8ba"), (Ids{1, 4, 0, 1}));
}

TEST(Bpe, AffixesSpellThePlaceInAWord) {
  auto suffix = make(R"({"vocab": {"a":0,"b":1,"b</w>":2,"ab</w>":3,"a</w>":4}, "merges": ["a b</w>"],
                         "end_of_word_suffix":"</w>"})");
  EXPECT_EQ(encode(*suffix, "ab"), Ids{3});
  EXPECT_EQ(encode(*suffix, "ba"), (Ids{1, 4}));
  EXPECT_EQ(encode(*suffix, "a"), Ids{4});
  auto prefix = make(R"({"vocab": {"a":0,"##a":1,"##b":2,"ab":3,"aba":4}, "merges": ["a ##b", "ab ##a"],
                         "continuing_subword_prefix":"##"})");
  EXPECT_EQ(encode(*prefix, "aba"), Ids{4});
  EXPECT_EQ(encode(*prefix, "aab"), (Ids{0, 1, 2}));
}

TEST(Bpe, IgnoreMergesTakesWholePieces) {
  constexpr const char* kRest = R"("vocab": {"a":0,"b":1,"ab":2,"bab":3}, "merges": ["a b"])";
  EXPECT_EQ(encode(*make("{" + std::string(kRest) + "}"), "bab"), (Ids{1, 2}));
  EXPECT_EQ(encode(*make("{" + std::string(kRest) + R"(,"ignore_merges":true})"), "bab"), Ids{3});
}

// Long pieces take the heap, short ones the scan; a piece longer than the limit is compared with a plain
// quadratic merge.
TEST(Bpe, HeapAndScanAgreeWithThePlainAlgorithm) {
  constexpr const char* kModel =
      R"({"vocab": {"a":0,"b":1,"c":2,"ab":3,"ba":4,"aa":5,"abc":6,"aab":7,"cab":8,"abab":9},
    "merges": ["a b", "b a", "a a", "ab c", "a ab", "c ab", "ab ab"]})";
  auto model = make(kModel);
  const std::vector<std::string> tokens{"a", "b", "c", "ab", "ba", "aa", "abc", "aab", "cab", "abab"};
  const std::vector<std::pair<std::string, std::string>> merges{
      {"a", "b"}, {"b", "a"}, {"a", "a"}, {"ab", "c"}, {"a", "ab"}, {"c", "ab"}, {"ab", "ab"}};
  std::mt19937 rng(1);
  for (int round = 0; round < 400; ++round) {
    std::string text;
    for (size_t n = 1 + rng() % 120; n > 0; --n)
      text += "abc"[rng() % 3];
    std::vector<std::string> plain;
    for (const char c : text)
      plain.emplace_back(1, c);
    while (true) {
      size_t best = merges.size(), at = 0;
      for (size_t i = 0; i + 1 < plain.size(); ++i) {
        for (size_t rank = 0; rank < best; ++rank) {
          if (merges[rank].first == plain[i] && merges[rank].second == plain[i + 1]) best = rank, at = i;
        }
      }
      if (best == merges.size()) break;
      plain[at] += plain[at + 1];
      plain.erase(plain.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids want;
    for (const std::string& token : plain) {
      want.push_back(static_cast<int32_t>(std::find(tokens.begin(), tokens.end(), token) - tokens.begin()));
    }
    ASSERT_EQ(encode(*model, text), want) << text;
  }
}

TEST(Bpe, OneHugePieceIsNotQuadratic) {
  auto model = make(R"({"vocab": {"a":0,"aa":1,"aaaa":2}, "merges": ["a a", "aa aa"]})");
  EXPECT_EQ(encode(*model, std::string(1 << 20, 'a')).size(), size_t{1} << 18);
}

TEST(Bpe, BadTablesAreErrors) {
  EXPECT_EQ(error_of(R"({"vocab": {"a":0}, "merges": ["a b"]})"),
            "tokenizer.json: model.merges[0] needs token \"b\", which model.vocab does not have");
  EXPECT_EQ(error_of(R"({"vocab": {"a":0,"b":1}, "merges": ["a b"]})"),
            "tokenizer.json: model.merges[0] needs token \"ab\", which model.vocab does not have");
  EXPECT_EQ(error_of(R"({"vocab": {"a":0,"b":0}, "merges": []})"),
            "tokenizer.json: model.vocab: \"b\" and \"a\" both have id 0");
  EXPECT_EQ(error_of(R"({"vocab": {"a":0,"a":1}, "merges": []})"),
            "tokenizer.json: model.vocab: token \"a\" appears twice");
  for (const char* id : {"-1", "4194304", "99999999999999999999", "1.5", "\"0\"", "null"}) {
    EXPECT_NE(
        error_of(R"({"vocab": {"a":)" + std::string(id) + R"(}, "merges": []})").find("an integer from 0"),
        std::string::npos)
        << id;
  }
  for (const char* merge : {R"("ab")", R"("a  b")", R"("a b c")", R"(["a"])", R"(["a","b","c"])",
                            R"(["a",1])", R"(["","a"])", R"(" a")", "7"}) {
    EXPECT_NE(error_of(R"({"vocab": {"a":0,"b":1,"ab":2,"":3}, "merges": [)" + std::string(merge) + "]}")
                  .find("is needed"),
              std::string::npos)
        << merge;
  }
  EXPECT_NE(error_of(R"({"vocab": {}, "merges": []})").find("is empty"), std::string::npos);
  EXPECT_NE(error_of(R"({"merges": []})").find("vocab is missing"), std::string::npos);
  EXPECT_NE(error_of(R"({"vocab": {"a":0}, "merges": [], "byte_fallback": 1})").find("byte_fallback is 1"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"vocab": {"a":0}, "merges": [], "dropout": 0.1})").find("dropout"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"vocab": {"a":0}, "merges": [], "unk_token": "u"})").find("\"u\""),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"vocab": {"a":0,"b":1,"ab":2}, "merges": ["a b"], "continuing_subword_prefix": "##"})")
          .find("must start with continuing_subword_prefix"),
      std::string::npos);
}

}  // namespace
}  // namespace fovea::text
