#include "text/pre_tokenizer.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea::text {
namespace {

Result<std::unique_ptr<PreTokenizer>> parse(std::string_view json) {
  auto spec = parse_json(json, "pre_tokenizer");
  EXPECT_TRUE(spec) << json;
  return parse_pre_tokenizer(&*spec);
}

// The pieces, each followed by "|".
std::string pieces(std::string_view json, std::string_view text, bool at_start = true) {
  auto stage = parse(json);
  EXPECT_TRUE(stage) << stage.error().message;
  if (!stage) return {};
  Pieces in{std::string(text), {{0, text.size()}}, at_start};
  EXPECT_TRUE((*stage)->apply(in));
  std::string out;
  for (const Span& span : in.spans)
    out += in.text.substr(span.begin, span.size()) + "|";
  return out;
}

std::string error_of(std::string_view json) {
  auto stage = parse(json);
  return stage ? "no error" : stage.error().message;
}

TEST(PreTokenizer, CharacterClasses) {
  EXPECT_EQ(pieces(R"({"type":"WhitespaceSplit"})", " a\u3000\tbc. "), "a|bc.|");
  EXPECT_EQ(pieces(R"({"type":"Whitespace"})", "a_1--\u00e9, \u4e2d\u2026!"),
            "a_1|--|\u00e9|,|\u4e2d|\u2026!|");
  EXPECT_EQ(pieces(R"({"type":"BertPreTokenizer"})", " it's $5\u3002 "), "it|'|s|$|5|\u3002|");
  EXPECT_EQ(pieces(R"({"type":"CharDelimiterSplit","delimiter":"-"})", "-a--b"), "a|b|");
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":false})", "a12\u0663b"), "a|12\u0663|b|");
  EXPECT_EQ(pieces(R"({"type":"Digits","individual_digits":true})", "a12b"), "a|1|2|b|");
}

TEST(PreTokenizer, PunctuationBehaviors) {
  const auto with = [](const std::string& behavior) {
    return pieces(R"({"type":"Punctuation","behavior":")" + behavior + "\"}", "!a,,b");
  };
  EXPECT_EQ(pieces(R"({"type":"Punctuation"})", "!a,,b"), "!|a|,|,|b|");
  EXPECT_EQ(with("Isolated"), "!|a|,|,|b|");
  EXPECT_EQ(with("Removed"), "a|b|");
  EXPECT_EQ(with("MergedWithPrevious"), "!|a,|,|b|");
  EXPECT_EQ(with("MergedWithNext"), "!a|,|,b|");
  EXPECT_EQ(with("Contiguous"), "!|a|,,|b|");
}

TEST(PreTokenizer, SplitByAnEmptyLiteralCutsNothing) {
  EXPECT_EQ(pieces(R"({"type":"Split","pattern":{"String":""},"behavior":"Isolated"})", "ab"), "ab|");
  EXPECT_EQ(pieces(R"({"type":"Split","pattern":{"String":"."},"behavior":"Isolated"})", "a.b"), "a|.|b|");
}

TEST(PreTokenizer, Metaspace) {
  EXPECT_EQ(pieces(R"({"type":"Metaspace"})", "a  b "), "\u2581a|\u2581|\u2581b|\u2581|");
  EXPECT_EQ(pieces(R"({"type":"Metaspace"})", " a"), "\u2581a|");
  EXPECT_EQ(pieces(R"({"type":"Metaspace"})", "\u2581a\u2581b"), "\u2581a|\u2581b|")
      << "marks in the text are marks";
  EXPECT_EQ(pieces(R"({"type":"Metaspace","split":false})", "a b"), "\u2581a\u2581b|");
  EXPECT_EQ(pieces(R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", "a b"), "a|_b|");
  EXPECT_EQ(pieces(R"({"type":"Metaspace","add_prefix_space":false})", "a"), "a|");
  EXPECT_EQ(pieces(R"({"type":"Metaspace","prepend_scheme":"first"})", "a", true), "\u2581a|");
  EXPECT_EQ(pieces(R"({"type":"Metaspace","prepend_scheme":"first"})", "a", false), "a|");
  constexpr const char* kSplitFirst = R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},
      {"type":"Metaspace","prepend_scheme":"first"}]})";
  EXPECT_EQ(pieces(kSplitFirst, "a b"), "\u2581a|b|");
  EXPECT_EQ(pieces(kSplitFirst, " a b"), "a|b|") << "the first piece is not where the input starts";
}

TEST(PreTokenizer, NullIsOnePiece) {
  EXPECT_EQ(*parse("null"), nullptr);
}

TEST(PreTokenizer, BadSettingsAreErrors) {
  const auto expect = [](std::string_view json, std::string_view part) {
    const std::string message = error_of(json);
    EXPECT_NE(message.find(part), message.npos) << message;
  };
  expect(R"({"type":"CharDelimiterSplit"})", "one character is needed");
  expect(R"({"type":"CharDelimiterSplit","delimiter":"ab"})", "one character is needed");
  expect(R"({"type":"Metaspace","replacement":""})", "one character is needed");
  expect(R"({"type":"Metaspace","prepend_scheme":"sometimes"})", "always, first and never are allowed");
  expect(R"({"type":"Metaspace","prepend_scheme":"always","add_prefix_space":false})", "drop one of them");
  expect(R"({"type":"Punctuation","behavior":"Gone"})", "Punctuation.behavior is \"Gone\"");
  expect(R"({"type":"Split","pattern":{"String":"a"}})", "Split.behavior is \"\"");
  expect(R"({"type":"Split","pattern":"a","behavior":"Isolated"})", "Split.pattern must be");
  expect(R"({"type":"Sequence"})", "must be a list");
  expect(R"({"type":"UnicodeScripts"})", "is not supported");
  expect("7", "pre_tokenizer \"\" is not supported");
}

}  // namespace
}  // namespace fovea::text
