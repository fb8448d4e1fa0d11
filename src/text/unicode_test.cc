#include "text/unicode.h"

#include <gtest/gtest.h>

namespace fovea::text {
namespace {

TEST(Unicode, Nfc) {
  EXPECT_EQ(to_normal_form("cafe\u0301", NormalForm::nfc), "caf\u00e9");
  EXPECT_EQ(to_normal_form("A\u030a", NormalForm::nfc), "\u00c5");
  EXPECT_EQ(to_normal_form("\u212b", NormalForm::nfc), "\u00c5");                // a singleton
  EXPECT_EQ(to_normal_form("q\u0307\u0323", NormalForm::nfc), "q\u0323\u0307");  // marks in canonical order
  EXPECT_EQ(to_normal_form("\u1112\u1161\u11ab", NormalForm::nfc), "\ud55c");    // Hangul
  EXPECT_EQ(to_normal_form("\u0958", NormalForm::nfc), "\u0915\u093c");          // excluded from composition
  EXPECT_EQ(to_normal_form("\u4e2d a", NormalForm::nfc), "\u4e2d a");
}

TEST(Unicode, NfcOfLongRunsOfMarksIsFast) {
  // Marks of alternating class: sorting them by swapping neighbours would take minutes.
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i)
    text += i % 2 ? "\u0301" : "\u0323";
  const std::string nfc = to_normal_form(text, NormalForm::nfc);
  EXPECT_TRUE(nfc.starts_with("\u1ea1\u0323"));
  EXPECT_TRUE(nfc.ends_with("\u0301"));
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0xFEFF));
  EXPECT_TRUE(is_numeric(0xBD));  // one half
  EXPECT_TRUE(is_word('_'));
  EXPECT_FALSE(is_word('-'));
  EXPECT_FALSE(is_printable(0xA0));
  EXPECT_EQ(to_title("they're ÉTÉ"), "They'Re Été");
  EXPECT_EQ(to_upper("straße"), "STRASSE");
  EXPECT_EQ(to_capitalized("éTÉ x"), "Été x");
}

}  // namespace
}  // namespace fovea::text
