#include "text/unicode.h"

#include <gtest/gtest.h>

#include "text/utf8.h"

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

TEST(Unicode, OtherForms) {
  EXPECT_EQ(to_normal_form("\u00e9\u00c5", NormalForm::nfd), "e\u0301A\u030a");
  EXPECT_EQ(to_normal_form("\ufb01 \u2460\uff21 \u00bd", NormalForm::nfkc), "fi 1A 1\u20442");
  EXPECT_EQ(to_normal_form("\ufb01\u00e9", NormalForm::nfkd), "fie\u0301");
  EXPECT_EQ(to_normal_form("\ufb01", NormalForm::nfc), "\ufb01");
  EXPECT_EQ(to_normal_form("\u00a0", NormalForm::nfkd), " ")
      << "the first character with a compatibility form";
  EXPECT_EQ(to_normal_form("\u00c0", NormalForm::nfd), "A\u0300") << "the first that decomposes";
  EXPECT_EQ(to_normal_form("\ud55c", NormalForm::nfd), "\u1112\u1161\u11ab");
  EXPECT_EQ(count_code_points(to_normal_form("\ufdfa", NormalForm::nfkc)), 18u);
}

TEST(Unicode, Graphemes) {
  EXPECT_EQ(first_grapheme(""), 0u);
  EXPECT_EQ(first_grapheme("ab"), 1u);
  EXPECT_EQ(first_grapheme("\r\na"), 2u);
  EXPECT_EQ(first_grapheme("\n\r"), 1u);
  EXPECT_EQ(first_grapheme("e\u0301\u0323x"), 5u);
  EXPECT_EQ(first_grapheme("\U0001F469\u200d\U0001F4BB!"), 11u);
  EXPECT_EQ(first_grapheme("\U0001F1E9\U0001F1EA\U0001F1EB"), 8u) << "flags are pairs";
}

TEST(Unicode, WhiteSpaceAtTheEnds) {
  EXPECT_EQ(leading_white_space("\t\u3000 a "), 5u);
  EXPECT_EQ(trailing_white_space(" a\u2003\n"), 4u);
  EXPECT_EQ(leading_white_space(" \u00a0"), 3u);
  EXPECT_EQ(trailing_white_space(" \u00a0"), 3u);
  EXPECT_EQ(trailing_white_space("a\u200b"), 0u);
}

TEST(Unicode, Classes) {
  EXPECT_TRUE(is_white_space(0x85));
  EXPECT_FALSE(is_white_space(0x180E));
  EXPECT_FALSE(is_white_space(0xFEFF));
  EXPECT_TRUE(is_numeric(0xBD));  // one half
  EXPECT_TRUE(is_word('_'));
  EXPECT_FALSE(is_word('-'));
  EXPECT_TRUE(is_word(0x24B6));  // a circled letter: alphabetic, but a symbol
  EXPECT_TRUE(is_word(0x200D));
  EXPECT_FALSE(is_word(0xBD));
  EXPECT_TRUE(is_mark(0x0903));  // Mc
  EXPECT_FALSE(is_nonspacing_mark(0x0903));
  EXPECT_TRUE(is_nonspacing_mark(0x0301));
  EXPECT_TRUE(is_punctuation('$'));  // a symbol, but of ASCII
  EXPECT_TRUE(is_punctuation(0x3002));
  EXPECT_FALSE(is_punctuation(0x20AC));
  EXPECT_TRUE(is_control_or_format(0x00AD));
  EXPECT_TRUE(is_control_or_format(0xE000));
  EXPECT_FALSE(is_control_or_format(0x0378)) << "unassigned";
  EXPECT_EQ(to_lower("\u0130\u03a3"), "i\u0307\u03c3");
  EXPECT_FALSE(is_printable(0xA0));
  EXPECT_EQ(to_title("they're ÉTÉ"), "They'Re Été");
  EXPECT_EQ(to_upper("straße"), "STRASSE");
  EXPECT_EQ(to_capitalized("éTÉ x"), "Été x");
}

}  // namespace
}  // namespace fovea::text
