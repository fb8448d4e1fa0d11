#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "flex/evaluate.h"
#include "flex/parse.h"
#include "flex/program.h"

namespace fovea::flex {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
const int32_t kDoc[] = {0, 0, 1, 1, 2};
const float kTable[] = {1.5f, -2.0f, 0.25f, 8.0f, 9.0f, 10.0f};
const uint8_t kFlags[] = {0, 7, 1};

std::vector<BufferType> types() {
  return {{"doc", Type::integer, 1}, {"table", Type::real, 2}, {"flag", Type::boolean, 1}};
}
std::vector<Buffer> buffers() {
  return {{kDoc, 1, 5, 5}, {kTable, 2, 3, 3}, {kFlags, 1, 3, 3}};
}

/// The value of a score at b 1, h 2, q 3, k 4, qlen 5, klen 7, s 0.5.
double score(std::string_view text) {
  const auto tree = parse(Role::score, text, types());
  if (!tree) {
    ADD_FAILURE() << tree.error().message;
    return std::nan("");
  }
  return evaluate<double>(*tree, types(), buffers(), {1, 2, 3, 4, 5, 7, 0.5});
}
bool mask(std::string_view text) {
  return score("(" + std::string(text) + ") ? 1 : 0") == 1;
}
std::string refusal(std::string_view text, Role role = Role::mask) {
  const auto tree = parse(role, text, types());
  return tree ? "accepted: " + tree->text(types()) : tree.error().message;
}

TEST(FlexLanguage, Arithmetic) {
  EXPECT_EQ(score("1 + 2 * 3 - 4"), 3);
  EXPECT_EQ(score("-2 * -3"), 6);
  EXPECT_EQ(score("7 / 2"), 3.5);
  EXPECT_EQ(score("7 // 2"), 3);
  EXPECT_EQ(score("-7 // 2"), -4);
  EXPECT_EQ(score("-7 % 4"), 1);
  EXPECT_EQ(score("7 % -4"), -1);
  EXPECT_EQ(score("(k - 4) // (k - 4) + q % (k - 4)"), 0) << "division by 0 is 0";
  EXPECT_EQ(score("2147483647 + k"), -2147483645.0) << "wraps";
  EXPECT_EQ(score("-2147483648 // -1"), -2147483648.0);
  EXPECT_EQ(score("0x7fffffff * k"), -4);
  EXPECT_EQ(score("1 << 33"), 2);
  EXPECT_EQ(score("-8 >> 1"), -4);
  EXPECT_EQ(score("6 & 3 | 8 ^ 1"), 2 | 9);
  EXPECT_EQ(score("~k"), -5);
  EXPECT_EQ(score("min(k, q, 1.5)"), 1.5);
  EXPECT_EQ(score("max(k, q) + abs(-q)"), 7);
  EXPECT_EQ(score("exp2(q) + log2(8) + sqrt(16)"), 15);
  EXPECT_EQ(score("tanh(s)"), std::tanh(0.5));
  EXPECT_EQ(score("int(-2.75) + int(1e30) - 2147483647"), -2);
  EXPECT_EQ(score("1 / 0"), kInf);
  EXPECT_EQ(score("-inf"), -kInf);
  EXPECT_EQ(score(".5e1 + 1.e0"), 6);
  EXPECT_EQ(score("b + h * 10 + qlen * 100 + klen * 1000"), 7521);
  EXPECT_EQ(score("true + (k > q)"), 2);
}

TEST(FlexLanguage, Conditions) {
  EXPECT_TRUE(mask("q <= k && !(q == k) || false"));
  EXPECT_TRUE(mask("not q > k and q != 4"));
  EXPECT_TRUE(mask("k & 1 == 0")) << "bit operators bind tighter than comparisons";
  EXPECT_TRUE(mask("false && true || true"));
  EXPECT_TRUE(mask("(k > q) & (q < k) & ~(q == k)"));
  EXPECT_TRUE(mask("(k > q) ^ (q > k)"));
  EXPECT_EQ(score("k > q ? q > k ? 1 : 2 : 3"), 2);
  EXPECT_EQ(score("k < q ? 1 : q < k ? 2 : 3"), 2);
  EXPECT_EQ(score("k > q ? s : -inf"), 0.5);
}

TEST(FlexLanguage, BuffersClampTheirIndices) {
  EXPECT_EQ(score("doc[2]"), 1);
  EXPECT_EQ(score("doc[-5] + doc[99]"), 2);
  EXPECT_EQ(score("doc[2147483647 + 1]"), 0);
  EXPECT_EQ(score("table[0, 1]"), -2);
  EXPECT_EQ(score("table[1][2]"), 10);
  EXPECT_EQ(score("table[9, -9]"), 8);
  EXPECT_EQ(score("table[-9, 9]"), 0.25);
  EXPECT_TRUE(mask("flag[1] && flag[2] && !flag[0]"));
  EXPECT_TRUE(mask("doc[doc[k]] == doc[k] - 1"));
}

TEST(FlexLanguage, ErrorsHaveThePlaceAndTheExpectation) {
  EXPECT_EQ(refusal("k <= q &&"),
            "mask, column 10: expected an operand: a number, a variable, a buffer or '(', found the end");
  EXPECT_EQ(refusal(""), "mask, column 1: expected a condition such as k <= q, found the end");
  EXPECT_EQ(refusal("k <= q)"), "mask, column 7: expected an operator or the end, found ')'");
  EXPECT_EQ(refusal("(k <= q"), "mask, column 8: expected ')', found the end");
  EXPECT_EQ(
      refusal("k + 1"),
      "mask, column 1: expected a condition (bool), found a value of type int; compare it, as in x != 0");
  EXPECT_EQ(refusal("q && k <= q"), "mask, column 3: '&&' takes conditions (bool), not int");
  EXPECT_EQ(refusal("0 <= k < q"), "mask, column 8: comparisons don't chain; write a < b && b < c");
  EXPECT_EQ(refusal("k = q"), "mask, column 3: '=' assigns, which expressions can't; compare with '=='");
  EXPECT_EQ(refusal("k <= q; q"), "mask, column 7: ';' is not part of the language");
  EXPECT_EQ(refusal("s > 0"),
            "mask, column 1: a mask can't read the score s; hide keys by score in the score, "
            "as in s < 0 ? -inf : s");
  EXPECT_THAT(refusal("foo <= q"), HasSubstr("mask, column 1: unknown name 'foo'; expected b, h, q, k, qlen, "
                                             "klen, a buffer (doc, table, flag) or a function (min, max"));
  EXPECT_EQ(refusal("doc[q, k] == 1"), "mask, column 1: the buffer doc has 1 dimension, not 2");
  EXPECT_EQ(refusal("table[q] == 1"), "mask, column 1: the buffer table has 2 dimensions, not 1");
  EXPECT_EQ(refusal("doc == 1"), "mask, column 5: expected '[' after the buffer doc, found '=='");
  EXPECT_EQ(refusal("doc[1.5] == 1"), "mask, column 5: an index takes an integer (see int()), not float");
  EXPECT_EQ(refusal("q[1] == 1"), "mask, column 1: 'q' is a number, not a buffer");
  EXPECT_EQ(refusal("min(1) == 1"), "mask, column 1: min takes two or more arguments, not 1");
  EXPECT_EQ(refusal("tanh(1, 2) == 1"), "mask, column 1: tanh takes one argument, not 2");
  EXPECT_EQ(refusal("tanh == 1"), "mask, column 6: expected '(' after the function tanh, found '=='");
  EXPECT_EQ(refusal("1.5 % q == 0"), "mask, column 5: '%' takes integers, not float");
  EXPECT_EQ(refusal("~1.5 == 0"), "mask, column 1: '~' takes an integer, not float");
  EXPECT_EQ(refusal("!k"), "mask, column 1: '!' takes a condition (bool), not int");
  EXPECT_EQ(refusal("k ? true : false"), "mask, column 1: '?' takes a condition (bool) before it, not int");
  EXPECT_EQ(refusal("true ? true"), "mask, column 12: expected ':', found the end");
  EXPECT_EQ(refusal("k < 12ab"),
            "mask, column 5: a number that goes on in 'a'; put a space or an operator there");
  EXPECT_THAT(refusal("k < 99999999999"), HasSubstr("column 5: an integer beyond 32 bits"));
  EXPECT_EQ(refusal("k < 0x"), "mask, column 5: expected digits after 0x");
  EXPECT_EQ(refusal("k <= q", Role::score),
            "score, column 1: expected a number, found a condition (bool); write c "
            "? s : -inf to hide keys");
  EXPECT_THAT(refusal("k < 1e999"), HasSubstr("a number out of range"));
  EXPECT_THAT(refusal(std::string("k < \0q", 6)), HasSubstr("column 5"));
}

TEST(FlexLanguage, Limits) {
  const auto repeat = [](std::string_view text, int times) {
    std::string all;
    for (int i = 0; i < times; ++i)
      all += text;
    return all;
  };
  EXPECT_THAT(refusal(repeat("(", 64) + "k" + repeat(")", 64), Role::score), HasSubstr("accepted"));
  EXPECT_EQ(refusal(repeat("(", 65) + "k" + repeat(")", 65), Role::score),
            "score, column 66: nested more than 64 levels deep");
  EXPECT_THAT(refusal(repeat("-", 100000), Role::score), HasSubstr("at most 8192 are allowed"));
  EXPECT_THAT(refusal(repeat("-", 8000), Role::score), HasSubstr("nested more than"));
  EXPECT_THAT(refusal(repeat("true ? 1 : ", 700) + "1", Role::score), HasSubstr("nested more than"));
  EXPECT_THAT(refusal("k" + repeat("*k+k", 600), Role::score), HasSubstr("more than 512 operations"));
  EXPECT_THAT(refusal("k" + repeat("+1", 400), Role::score), HasSubstr("accepted"));
}

TEST(FlexLanguage, FoldsConstants) {
  const auto text = [](std::string_view source, Role role = Role::score) {
    return parse(role, source, types())->text(types());
  };
  EXPECT_EQ(text("s * (1 + 2 * 3)"), "(s * 7.0)");
  EXPECT_EQ(text("2 > 1 ? s : k"), "s");
  EXPECT_EQ(text("true && k <= q || false", Role::mask), "(k <= q)");
  EXPECT_EQ(text("k <= q || 1 < 2", Role::mask), "true");
  EXPECT_EQ(text("!!(k <= q)", Role::mask), "(k <= q)");
  EXPECT_EQ(text("s + tanh(0)"), "(s + 0.0)");
  EXPECT_EQ(text("0 * inf"), "(0.0 * inf)") << "NaN is not written";
  EXPECT_EQ(text("k > q", Role::mask), "(q < k)");
}

TEST(FlexLanguage, SharesEqualParts) {
  const auto tree = parse(Role::score, "(q - k) * (q - k) + abs(q - k)", types());
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->nodes().size(), 7u) << tree->text(types());  // q k - * abs + float
  EXPECT_EQ(tree->depends(), bit_of(Variable::q) | bit_of(Variable::k));
}

TEST(FlexLanguage, HashesWhatItMeans) {
  const auto hash = [](std::string_view mask, std::string_view score) {
    return make_program(mask, score, types())->hash();
  };
  EXPECT_EQ(hash("k<=q", "s*2"), hash("q >= k", "( s * (1+1) )"));
  EXPECT_EQ(hash("true", "s"), hash("", ""));
  EXPECT_NE(hash("k<=q", ""), hash("k<q", ""));
  EXPECT_NE(hash("k<=q", ""), hash("q<=k", ""));
  EXPECT_NE(hash("k<=q", "s*2"), hash("k<=q", "s*3"));
  EXPECT_NE(hash("", ""), make_program("", "", {})->hash());
  EXPECT_NE(hash("false", ""), hash("true", ""));
}

TEST(FlexLanguage, RefusesBufferNames) {
  const auto refused = [](std::vector<BufferType> buffers) {
    const Status status = check_buffers(buffers);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(refused({{"q", Type::real, 1}}), "buffer 'q' has a name that the language uses; rename it");
  EXPECT_EQ(refused({{"and", Type::real, 1}}), "buffer 'and' has a name that the language uses; rename it");
  EXPECT_EQ(refused({{"min", Type::real, 1}}), "buffer 'min' has a name that the language uses; rename it");
  EXPECT_THAT(refused({{"1a", Type::real, 1}}), HasSubstr("is not a name"));
  EXPECT_THAT(refused({{"", Type::real, 1}}), HasSubstr("is not a name"));
  EXPECT_EQ(refused({{"x", Type::real, 1}, {"x", Type::real, 2}}), "buffer 'x' is given twice");
  EXPECT_EQ(refused({{"x", Type::real, 3}}), "buffer 'x' has 3 dimensions; it must have 1 or 2");
}

}  // namespace
}  // namespace fovea::flex
