#include "text/regex.h"
#include "fovea/result.h"

#include <gtest/gtest.h>
#include <string>

namespace fovea::text {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  auto regex = Regex::compile(pattern);
  if (!regex) return {"error: " + regex.error().message};
  std::vector<Span> spans;
  if (auto status = regex->find_all(text, spans); !status) return {"error: " + status.error().message};
  std::vector<std::string> out;
  for (const Span& span : spans)
    out.emplace_back(text.substr(span.begin, span.size()));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Regex, UnicodeClassesAndLookahead) {
  EXPECT_EQ(matches(R"(\p{L}+)", "aé中 b"), (Texts{"aé中", "b"}));
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "  x "), (Texts{" ", " ", " "}));
  EXPECT_EQ(matches(R"((?i:'S))", "'s'S"), (Texts{"'s", "'S"}));
}

TEST(Regex, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(matches(R"(\s)", "\u0085\u00a0\u3000\u2028"), (Texts{"\u0085", "\u00a0", "\u3000", "\u2028"}));
  EXPECT_EQ(matches(R"(\s)", "\u180e\u200b\ufeff"), Texts{});
  EXPECT_EQ(matches(R"([^\sa]+)", "\u180e a\u3000b"), (Texts{"\u180e", "b"}));
  EXPECT_EQ(matches(R"(\S+)", "a\u2003b"), (Texts{"a", "b"}));
}

TEST(Regex, LineEndsAreRubys) {
  EXPECT_EQ(matches("^.", "ab\ncd"), (Texts{"a", "c"}));
}

TEST(Regex, EmptyMatches) {
  EXPECT_EQ(matches("x*", "axb"), (Texts{"", "x", ""}));
  EXPECT_EQ(matches("", "é"), (Texts{"", ""}));
}

TEST(Regex, ExplodingPatternsAreErrors) {
  const Texts out = matches(R"(^(?:a|a|aa|aaa)+(?:b|c)$)", std::string(60, 'a'));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_NE(out[0].find("matching pattern"), std::string::npos) << out[0];
}

TEST(Regex, LongRunsStayWithinTheLimits) {
  EXPECT_EQ(matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", std::string(1 << 20, ' ') + "x").size(), 2u);
  EXPECT_EQ(matches(R"(\p{L}+)", std::string(1 << 20, 'a')).size(), 1u);
}

TEST(Regex, BadPatternsAreErrors) {
  EXPECT_NE(matches("(", "a")[0].find("error: the pattern does not compile"), std::string::npos);
  EXPECT_NE(matches("[a&&b]", "a")[0].find("intersection"), std::string::npos);
  EXPECT_NE(matches(std::string(70'000, 'a'), "a")[0].find("at most"), std::string::npos);
  EXPECT_NE(matches(R"((?=(\Ka)))", "a")[0].find("error"), std::string::npos);
}

// Constructs that Oniguruma and PCRE2 interpret differently.
TEST(Regex, ClassesAreOnigurumas) {
  const auto count = [](std::string_view pattern, std::string_view text) {
    auto regex = Regex::compile(pattern);
    EXPECT_TRUE(regex) << regex.error().message;
    std::vector<Span> matches;
    EXPECT_TRUE(!regex || regex->find_all(text, matches));
    return matches.size();
  };
  EXPECT_EQ(count(R"( ?[^(\s|[.,!?])]+)", "ab, (cd)|e"), 3u) << "a class inside a class";
  EXPECT_EQ(count(R"([a[bc]d]+)", "abcd[x]"), 1u);
  EXPECT_EQ(count(R"([[:digit:]x]+)", "1x 2"), 2u);
  EXPECT_EQ(count(R"(\w+)", "e\u0301_1 \u24b6-"), 2u) << "marks and circled letters are word characters";
  EXPECT_EQ(count(R"([\w-]+)", "e\u0301-x"), 1u);
  EXPECT_EQ(count(R"(\W)", "e\u0301-"), 1u);
  EXPECT_EQ(count(R"(\h+)", "af09 g"), 1u) << "hexadecimal digits";
  EXPECT_EQ(count(R"([]a]+)", "]a"), 1u);
  EXPECT_FALSE(Regex::compile(R"([a[^b]])"));
  EXPECT_FALSE(Regex::compile(R"([a\W])"));
}

}  // namespace
}  // namespace fovea::text
