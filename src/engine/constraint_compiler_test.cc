#include "engine/constraint_compiler.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

/// Tokens are the printable characters, by their codes, and some words.
std::unique_ptr<Tokenizer> small_tokenizer() {
  std::string vocab;
  for (int c = 0; c < 95; ++c) {
    const char character = static_cast<char>(' ' + c);
    const std::string escaped = character == '"' || character == '\\' ? "\\" : "";
    vocab += (c > 0 ? ",\"" : "\"") + escaped + character + "\":" + std::to_string(c);
  }
  vocab += R"(,"</think>":95,"end</think>{":96,"true":97,"<|end|>":98)";
  auto made = Tokenizer::parse(
      R"({"model":{"type":"BPE","vocab":{)" + vocab + R"(},"merges":[]},"decoder":{"type":"Fuse"},
      "added_tokens":[{"id":98,"content":"<|end|>","special":true}]})",
      "{}");
  EXPECT_TRUE(made.ok()) << (made ? "" : made.error().message);
  return made ? *std::move(made) : nullptr;
}

OutputConstraint schema(std::string after = "") {
  OutputConstraint constraint;
  constraint.kind = OutputConstraint::Kind::json_schema;
  constraint.text =
      R"({"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false})";
  constraint.white_space = "";
  if (!after.empty()) constraint.after = {std::move(after)};
  return constraint;
}

class ConstraintCompilerTest : public testing::Test {
 protected:
  std::unique_ptr<TokenConstraint> begin(const OutputConstraint& constraint) {
    auto compiled = compiler.compile(constraint);
    EXPECT_TRUE(compiled.ok()) << (compiled ? "" : compiled.error().message);
    return compiler.begin(*compiled, constraint);
  }
  static bool has(TokenConstraint& constraint, int32_t token) {
    std::vector<uint32_t> mask(TokenConstraint::mask_words(99));
    return !constraint.fill_mask(mask) || (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  }
  static int32_t id(char c) { return c - ' '; }
  static void say(TokenConstraint& constraint, std::string_view text) {
    for (const char c : text) {
      ASSERT_TRUE(has(constraint, id(c))) << c << " of " << text;
      ASSERT_TRUE(constraint.advance(id(c))) << c << " of " << text;
    }
  }
  /// Everything may follow but the end.
  static void expect_free(TokenConstraint& constraint) {
    for (int32_t token = 0; token < 99; ++token)
      ASSERT_EQ(has(constraint, token), token != 98) << token;
  }

  std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  ConstraintCompiler compiler{*tokenizer, {98}};
};

TEST_F(ConstraintCompilerTest, EndsTheAnswerWhereNothingFollows) {
  const auto constraint = begin(schema());
  for (const char c : std::string_view("{\"a\":")) {
    ASSERT_TRUE(has(*constraint, id(c))) << c;
    EXPECT_FALSE(has(*constraint, 98));
    ASSERT_TRUE(constraint->advance(id(c)));
  }
  EXPECT_FALSE(constraint->advance(id('x')));
  ASSERT_TRUE(constraint->advance(97));
  EXPECT_TRUE(has(*constraint, id('}')));
  EXPECT_FALSE(constraint->advance(id('}')));  // the last token: nothing follows it
  EXPECT_TRUE(has(*constraint, id('}')));      // and the state is unchanged
  constraint->roll_back(1);
  EXPECT_TRUE(has(*constraint, 97));
}

TEST_F(ConstraintCompilerTest, BeginsAfterTheReasoning) {
  const auto constraint = begin(schema("</think>"));
  expect_free(*constraint);
  say(*constraint, "x</thin");
  expect_free(*constraint);
  ASSERT_TRUE(constraint->advance(id('k')));
  ASSERT_TRUE(constraint->advance(id('>')));
  EXPECT_TRUE(has(*constraint, id('{')));
  EXPECT_FALSE(has(*constraint, id('x')));
  constraint->roll_back(3);
  ASSERT_TRUE(constraint->advance(id('>')));  // "x</thin>"
  expect_free(*constraint);
  ASSERT_TRUE(constraint->advance(96));  // the end of the reasoning and the first byte in one token
  EXPECT_TRUE(has(*constraint, id('"')));
  EXPECT_FALSE(has(*constraint, id('{')));
  constraint->roll_back(1);
  expect_free(*constraint);
}

/// The answer must have the form, so that it does not end in the reasoning, unless with a call.
TEST_F(ConstraintCompilerTest, DoesNotEndInTheReasoning) {
  OutputConstraint wanted = schema("</think>");
  const auto constraint = begin(wanted);
  EXPECT_FALSE(has(*constraint, 98));
  wanted.may_end_before = true;
  EXPECT_TRUE(has(*begin(wanted), 98));
}

TEST_F(ConstraintCompilerTest, TheReasoningMayBeLeftOut) {
  OutputConstraint wanted = schema("</think>");
  wanted.after_begin = "<think>";
  const auto constraint = begin(wanted);
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(has(*constraint, id('{')) && has(*constraint, id('<')) && has(*constraint, id(' ')));
    EXPECT_FALSE(has(*constraint, id('x')) || has(*constraint, 98));
    EXPECT_FALSE(constraint->advance(id('x')));
    say(*constraint, "{\"a");  // the form from the start
    EXPECT_TRUE(has(*constraint, id('"')));
    EXPECT_FALSE(has(*constraint, id('<')));
    constraint->roll_back(3);
    say(*constraint, "  ");
    EXPECT_FALSE(has(*constraint, id(' ')));  // not for ever
    constraint->roll_back(1);
    say(*constraint, "<think");
    EXPECT_TRUE(has(*constraint, id('>')));
    EXPECT_FALSE(has(*constraint, id('x')));
    say(*constraint, ">");
    expect_free(*constraint);
    say(*constraint, "{x</think>");
    EXPECT_TRUE(has(*constraint, id('{')));
    EXPECT_FALSE(has(*constraint, id('<')) || has(*constraint, id('x')));
    say(*constraint, "{\"a\":");
    EXPECT_TRUE(has(*constraint, 97));
    constraint->roll_back(static_cast<int>(std::string_view(" <think>{x</think>{\"a\":").size()));
  }
}

/// A form whose text may be that of the reasoning begins again behind it.
TEST_F(ConstraintCompilerTest, AFormBeginsAgainBehindTheReasoning) {
  OutputConstraint wanted;
  wanted.kind = OutputConstraint::Kind::regex;
  wanted.text = "[<thinkx>]{8}y";
  wanted.after = {"</think>"};
  wanted.after_begin = "<think>";
  const auto constraint = begin(wanted);
  say(*constraint, "<think>x</think>");
  EXPECT_FALSE(has(*constraint, id('y')));
  say(*constraint, "xxxxxxxx");
  EXPECT_TRUE(has(*constraint, id('y')));
  constraint->roll_back(24);
  say(*constraint, "<<<<<<<<");
  EXPECT_TRUE(has(*constraint, id('y')));
}

TEST_F(ConstraintCompilerTest, TextsComeOneAfterTheOther) {
  OutputConstraint wanted = schema();
  wanted.after = {"fin", "<m>"};
  const auto constraint = begin(wanted);
  say(*constraint, "<m>a fi<m>n fin json");
  expect_free(*constraint);
  say(*constraint, "<m>");
  EXPECT_FALSE(has(*constraint, id('x')));
  constraint->roll_back(9);  // "<m>a fi<m>n f"
  say(*constraint, "<m>in<m>");
  expect_free(*constraint);
  say(*constraint, "fin<m>{");
  EXPECT_TRUE(has(*constraint, id('"')));
}

TEST_F(ConstraintCompilerTest, ACallMayComeInstead) {
  for (const bool thinks : {false, true}) {
    OutputConstraint wanted = schema(thinks ? "</think>" : "");
    wanted.instead = {"[CALL]", "<f>"};
    const auto constraint = begin(wanted);
    if (thinks) {
      expect_free(*constraint);
      say(*constraint, "[CALL]</think>");
    }
    EXPECT_TRUE(has(*constraint, id('{')) && has(*constraint, id('[')) && has(*constraint, id('<')));
    EXPECT_FALSE(has(*constraint, id('x')) || has(*constraint, id(' ')) || has(*constraint, 98));
    say(*constraint, "[CALL");
    EXPECT_FALSE(has(*constraint, id('x')) || has(*constraint, 98));
    say(*constraint, "]");
    for (const char c : std::string_view("x{]"))
      EXPECT_TRUE(has(*constraint, id(c)) && has(*constraint, 98));
    say(*constraint, "x{");
    constraint->roll_back(8);
    say(*constraint, "{\"a\":");
    EXPECT_TRUE(has(*constraint, 97));
    EXPECT_FALSE(has(*constraint, id('<')));
  }
}

TEST_F(ConstraintCompilerTest, ErrorsNameTheField) {
  OutputConstraint bad;
  bad.kind = OutputConstraint::Kind::regex;
  bad.text = "(";
  bad.name = "guided_regex";
  EXPECT_TRUE(compiler.compile(bad).error().message.starts_with("guided_regex: the regular expression"));
}

TEST_F(ConstraintCompilerTest, CompilesEachOnce) {
  const auto first = compiler.compile(schema());
  const auto again = compiler.compile(schema("</think>"));
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->form, again->form);
  OutputConstraint bad;
  bad.kind = OutputConstraint::Kind::regex;
  bad.text = "(";
  EXPECT_FALSE(compiler.compile(bad).ok());
}

TEST_F(ConstraintCompilerTest, RollsBackWhatTheWorkerPrepares) {
  OutputConstraint any;
  const auto constraint = begin(any);
  for (int i = 0; i < 200; ++i) {
    const std::string text = "{\"k\": [1, \"two\", {}], \"" + std::to_string(i);
    for (const char c : text)
      ASSERT_TRUE(constraint->advance(id(c)));
    constraint->roll_back(static_cast<int>(text.size()) % TokenConstraint::kMaxRollBack);
    for (size_t left = text.size() - text.size() % TokenConstraint::kMaxRollBack; left > 0;) {
      const size_t count = std::min<size_t>(left, TokenConstraint::kMaxRollBack);
      constraint->roll_back(static_cast<int>(count));
      left -= count;
    }
    ASSERT_TRUE(has(*constraint, id('{')));
    ASSERT_FALSE(has(*constraint, id('k')));
  }
}

}  // namespace
}  // namespace fovea
