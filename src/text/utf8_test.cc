#include "text/utf8.h"

#include <gtest/gtest.h>

namespace fovea::text {
namespace {

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string bytes;
    append_utf8(c, bytes);
    const Utf8Char decoded = decode_utf8(bytes);
    ASSERT_EQ(decoded.status, Utf8Status::complete) << c;
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.length, bytes.size());
  }
}

TEST(Utf8, SurrogatesAndValuesBeyondTheEndBecomeTheReplacement) {
  for (const uint32_t c : {0xD800u, 0xDFFFu, 0x110000u, 0xFFFFFFFFu}) {
    std::string bytes;
    append_utf8(c, bytes);
    EXPECT_EQ(bytes, kReplacementUtf8);
  }
}

// Table 3-8 of the Unicode standard: one U+FFFD for each maximal subpart.
TEST(Utf8, ReplacesMaximalSubparts) {
  const std::string r(kReplacementUtf8);
  EXPECT_EQ(to_valid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(to_valid_utf8("\xC0\x80"), r + r);
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(to_valid_utf8("x\xF0\x9F\x99"), "x" + r);
  EXPECT_EQ(to_valid_utf8("\xE4\xB8\xAD"), "\xE4\xB8\xAD");
}

TEST(Utf8, KeepsAnUnfinishedCharacterBack) {
  const std::string_view smile = "\xF0\x9F\x99\x82";
  for (size_t n = 0; n < smile.size(); ++n) {
    std::string out;
    EXPECT_EQ(append_complete_utf8(smile.substr(0, n), out), 0u);
    EXPECT_EQ(out, "");
  }
  std::string out;
  EXPECT_EQ(append_complete_utf8("ab\xF0\x9F", out), 2u);
  EXPECT_EQ(out, "ab");
  EXPECT_FALSE(is_valid_utf8("ab\xF0\x9F"));
  EXPECT_TRUE(is_valid_utf8(smile));
  EXPECT_EQ(count_code_points("a\xC3\xA9\xF0\x9F\x99\x82"), 3u);
}

}  // namespace
}  // namespace fovea::text
