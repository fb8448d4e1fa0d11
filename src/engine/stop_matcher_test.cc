#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace fovea {
namespace {

TEST(StopMatcherTest, NoStopsHoldNothingBack) {
  StopMatcher m({});
  std::string out;
  EXPECT_FALSE(m.push("text", out));
  EXPECT_EQ(out, "text");
}

TEST(StopMatcherTest, StopInsideOnePiece) {
  StopMatcher m({"END"});
  std::string out;
  EXPECT_TRUE(m.push("left END right", out));
  EXPECT_EQ(out, "left ");
  EXPECT_EQ(m.matched(), "END");
}

TEST(StopMatcherTest, StopAcrossPiecesIsHeldBackAndNoMore) {
  StopMatcher m({"</s>"});
  std::string out;
  EXPECT_FALSE(m.push("a<", out));
  EXPECT_EQ(out, "a");
  EXPECT_FALSE(m.push("/", out));
  EXPECT_EQ(out, "a");
  EXPECT_FALSE(m.push("x", out));  // not the stop after all
  EXPECT_EQ(out, "a</x");
  EXPECT_FALSE(m.push("</", out));
  EXPECT_TRUE(m.push("s>", out));
  EXPECT_EQ(out, "a</x");
}

TEST(StopMatcherTest, OverlappingPrefixes) {
  StopMatcher m({"aab"});
  std::string out;
  EXPECT_FALSE(m.push("aaa", out));  // "aa" may still begin the stop, the first a can't
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(m.push("b", out));
  EXPECT_EQ(out, "a");
}

TEST(StopMatcherTest, TheFirstToBeCompleteWins) {
  StopMatcher m({"abcd", "bc"});
  std::string out;
  EXPECT_TRUE(m.push("xabcd", out));
  EXPECT_EQ(m.matched(), "bc");
  EXPECT_EQ(out, "xa");
}

TEST(StopMatcherTest, TheLongestOfThoseThatEndTogetherWins) {
  StopMatcher m({"c", "abc"});
  std::string out;
  EXPECT_TRUE(m.push("abc", out));
  EXPECT_EQ(m.matched(), "abc");
  EXPECT_EQ(out, "");
}

TEST(StopMatcherTest, IncludedWhenAsked) {
  StopMatcher m({"END"}, true);
  std::string out;
  EXPECT_FALSE(m.push("a E", out));
  EXPECT_TRUE(m.push("ND b", out));
  EXPECT_EQ(out, "a END");
}

TEST(StopMatcherTest, FinishReleasesWhatWasHeld) {
  StopMatcher m({"END"});
  std::string out;
  EXPECT_FALSE(m.push("the EN", out));
  EXPECT_EQ(out, "the ");
  m.finish(out);
  EXPECT_EQ(out, "the EN");
}

TEST(StopMatcherTest, NeverHalfACharacter) {
  // U+00E9 is C3 A9 and U+00E8 is C3 A8: they share the first byte.
  StopMatcher m({"\xC3\xA9"});
  std::string out;
  EXPECT_FALSE(m.push("\xC3\xA8", out));
  EXPECT_EQ(out, "\xC3\xA8");
  EXPECT_TRUE(m.push("x\xC3\xA9y", out));
  EXPECT_EQ(out, "\xC3\xA8x");
}

TEST(StopMatcherTest, WhatIsCompleteBeforeItMayStopIsText) {
  StopMatcher m({"ab"});
  std::string out;
  EXPECT_FALSE(m.push("xab a", out, false));
  EXPECT_EQ(out, "xab ");
  EXPECT_TRUE(m.push("b", out));
  EXPECT_EQ(out, "xab ");
}

/// For any split into pieces and any prefix that may not stop: the cut equals that of a search of the whole
/// text, and after each piece everything that cannot become part of a match has been output.
TEST(StopMatcherProperty, PiecesDontMatter) {
  std::mt19937 rng(5);
  int matches = 0;
  for (int round = 0; round < 3000; ++round) {
    auto word = [&](size_t longest) {
      std::string w(rng() % longest + 1, 'a');
      for (char& c : w)
        c = "ab"[rng() % 2];
      return w;
    };
    std::vector<std::string> stops;
    for (size_t i = rng() % 3 + 1; i > 0; --i)
      stops.push_back(word(6));
    const std::string text = word(24);
    const size_t quiet = rng() % 2 ? 0 : rng() % (text.size() + 1);  // first bytes that may not stop

    // The first end of any stop, then the longest stop that ends there.
    size_t end = std::string::npos, length = 0;
    for (size_t e = quiet + 1; e <= text.size() && end == std::string::npos; ++e)
      for (const std::string& s : stops)
        if (s.size() <= e && text.compare(e - s.size(), s.size(), s) == 0) {
          end = e;
          length = std::max(length, s.size());
        }
    StopMatcher m(stops);
    std::string out;
    bool stopped = false;
    for (size_t at = 0; at < text.size() && !stopped;) {
      const size_t n = std::min((at < quiet ? quiet : text.size()) - at, static_cast<size_t>(rng() % 4 + 1));
      stopped = m.push(std::string_view(text).substr(at, n), out, at >= quiet);
      at += n;
      if (stopped) break;
      // Held back: the longest suffix that is a prefix of a stop.
      size_t hold = 0;
      for (const std::string& s : stops)
        for (size_t k = 1; k < s.size() && k <= at; ++k)
          if (text.compare(at - k, k, s, 0, k) == 0) hold = std::max(hold, k);
      ASSERT_EQ(out, text.substr(0, at - hold));
    }
    ASSERT_EQ(stopped, end != std::string::npos);
    if (!stopped) m.finish(out);
    ASSERT_EQ(out, stopped ? text.substr(0, end - length) : text);
    matches += stopped;
  }
  EXPECT_GT(matches, 500);
  EXPECT_LT(matches, 2900);
}

}  // namespace
}  // namespace fovea
