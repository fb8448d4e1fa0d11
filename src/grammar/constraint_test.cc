#include "grammar/constraint.h"

#include <gtest/gtest.h>

#include "grammar/compile.h"

namespace fovea::grammar {
namespace {

using Kind = ConstraintSpec::Kind;

/// Bytes, some words, a special token and an end token.
std::shared_ptr<const TokenTrie> small_vocabulary() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b)
    tokens.emplace_back(1, static_cast<char>(b));
  for (const char* word : {"{\"",  "\":",    "\": ",    ", ",   "\",",  "\"}",       "}}",
                           "]}",   "true",   "name",    "na",   "me",   "hello",     " world",
                           "12",   "345",    "},",      "ab",   "abc",  "abcabcabc", "\xC3\xA4\xC3\xB6",
                           "\n  ", "<tool>", "</tool>", "name", "null", "a\xE2",     "\x82\xAC"})
    tokens.emplace_back(word);
  tokens.emplace_back("<|call|>");
  tokens.emplace_back("<|end|>");
  const auto count = static_cast<int32_t>(tokens.size());
  return std::make_shared<TokenTrie>(
      count, [tokens](int32_t id) { return tokens[static_cast<size_t>(id)]; },
      [count](int32_t id) { return id >= count - 2; }, std::vector<int32_t>{count - 1});
}

std::shared_ptr<Constraint> compile(Kind kind, const std::string& text, std::string* error = nullptr) {
  ConstraintSpec spec;
  spec.kind = kind;
  spec.text = text;
  auto made = compile_constraint(spec, small_vocabulary());
  if (made) return *made;
  if (error)
    *error = made.error().message;
  else
    ADD_FAILURE() << made.error().message;
  return nullptr;
}

void expect_texts(Kind kind, const std::string& text, const std::vector<std::string>& good,
                  const std::vector<std::string>& bad) {
  const auto constraint = compile(kind, text);
  ASSERT_TRUE(constraint);
  for (const std::string& each : good)
    EXPECT_TRUE(constraint->allows(each)) << text << " should allow " << each;
  for (const std::string& each : bad)
    EXPECT_FALSE(constraint->allows(each)) << text << " should not allow " << each;
}

std::string error_of(Kind kind, const std::string& text) {
  std::string error;
  EXPECT_FALSE(compile(kind, text, &error)) << text;
  return error;
}

/// Whether each bit of the mask says what accept() does.
void expect_mask(Matcher& matcher) {
  const TokenTrie& trie = matcher.constraint().trie();
  std::vector<uint32_t> mask(trie.mask_words(), 0xDEADBEEF);
  matcher.fill_mask(mask);
  for (int32_t id = 0; id < trie.vocab(); ++id) {
    const bool bit = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
    const bool follows = matcher.accept(id);
    ASSERT_EQ(bit, follows) << "token " << id << " (" << trie.bytes(id) << ") after " << matcher.accepted();
    if (follows) matcher.roll_back(1);
  }
}

TEST(Regex, TextsInAndOut) {
  expect_texts(Kind::regex, "a(b|c)*d?", {"a", "ab", "abcbd", "ad"}, {"", "b", "add", "abe"});
  expect_texts(Kind::regex, "[0-9]{3,5}", {"123", "12345"}, {"12", "123456"});
  expect_texts(Kind::regex, "^x{2}$", {"xx"}, {"x", "xxx"});
  expect_texts(Kind::regex, "(?:^a|b)c", {"ac", "bc"}, {"c"});
  expect_texts(Kind::regex, "[^a-z]", {"\xC3\xA4", "A", "\xF0\x9F\x98\x80", "\n"}, {"a", "\xC3", ""});
  expect_texts(Kind::regex, "(?!ab).*", {"ba", "a", ""}, {"ab", "abc"});
  expect_texts(Kind::regex, "(?=.*[0-9])[a-z0-9]+", {"a1", "1"}, {"a", ""});
  expect_texts(Kind::regex, "\\p{Lu}\\d\\w\\s",
               {"\xC3\x84"
                "1_ "},
               {"a1_ "});
  expect_texts(Kind::regex, "(?i)abc", {"ABC", "aBc"}, {"abd"});
  expect_texts(Kind::regex, "(?i:a(?-i:b))c(?s:.)(?is-i:d).", {"Abc\nd ", "abcxde"},
               {"aBc\nd ", "abC\nd ", "abc\nD ", "abc\nd\n"});
  expect_texts(Kind::regex, "a{,2}b", {"b", "aab"}, {"aaab", "a{,2}b"});
  expect_texts(Kind::regex, "(a{0,3}){2,100000}", {"", "aaaaaaa"}, {"b"});
  expect_texts(Kind::regex, "\\u00e4\\x41\\.",
               {"\xC3\xA4"
                "A."},
               {"\xC3\xA4"
                "Ax"});
}

TEST(Regex, RefusesByName) {
  EXPECT_NE(error_of(Kind::regex, "(a)\\1").find("back references"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "(?<=a)b").find("lookbehind"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "a^b").find("^"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "a\\bc").find("\\b"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "[[:alpha:]_]").find("[:NAME:]"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "(?m:a)").find("kind of group"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "(a").find(")"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "a)").find(")"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "[z-a]").find("range"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "a{3,2}").find("larger"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, "(?!.*)").find("no text"), std::string::npos);
  EXPECT_NE(error_of(Kind::regex, std::string(300, '(') + std::string(300, ')')).find("200"),
            std::string::npos);
}

TEST(Gbnf, TextsInAndOut) {
  expect_texts(Kind::grammar, "root ::= \"a\" b | \"c\"\nb ::= \"b\" b | \"\"", {"a", "abbb", "c"},
               {"b", "cb"});
  expect_texts(Kind::grammar, "root ::= \"(\" root \")\" | [0-9]+ # nests", {"1", "((23))"}, {"((1)", "()"});
  expect_texts(Kind::grammar, "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= \"x\" | \"(\" expr \")\"",
               {"x+x", "(x+x)+x"}, {"x+", "(x"});
  expect_texts(Kind::grammar, "root ::= \"a\"+ \"ab\"", {"aab", "aaaab"}, {"ab"});  // not greedy
  expect_texts(Kind::grammar, "root ::= root \"a\" | root \"b\" | \"x\"", {"x", "xabab"}, {"a"});
  expect_texts(Kind::grammar, "root ::= x{2,3}\nx ::= \"a\" | \"(\" x \")\"", {"a(a)", "aa((a))"},
               {"a", "aaaa"});
}

TEST(Gbnf, RefusesByName) {
  EXPECT_NE(error_of(Kind::grammar, "root ::= a").find("\"a\""), std::string::npos);
  EXPECT_NE(error_of(Kind::grammar, "x ::= \"a\"").find("root"), std::string::npos);
  EXPECT_NE(error_of(Kind::grammar, "root ::= root").find("no text"), std::string::npos);
  EXPECT_NE(error_of(Kind::grammar, "root ::= \"a").find("end"), std::string::npos);
  EXPECT_NE(error_of(Kind::grammar, "root ::= \"a\"\n\nroot ::= \"b\"").find("twice"), std::string::npos);
}

TEST(Lark, TextsInAndOut) {
  expect_texts(
      Kind::grammar,
      "start: expr\nexpr: term ((\"+\" | \"-\") term)*\n?term: NUMBER -> number\n    | \"(\" expr \")\"\n"
      "%import common.NUMBER\n%import common.WS\n%ignore WS",
      {"1+2", " 1 + (2 - 3)", "4"}, {"1+", "(", "a"});
  expect_texts(Kind::grammar, "start: A~2..3 [B]\nA: \"a\"i\nB: /b+/ | \"0\"..\"9\"", {"aA", "aaabb", "aa7"},
               {"a", "b"});
}

TEST(Schema, TextsInAndOut) {
  const auto expect = [](const char* schema, const std::vector<std::string>& good,
                         const std::vector<std::string>& bad) {
    expect_texts(Kind::json_schema, schema, good, bad);
  };
  expect(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],
            "additionalProperties":false})",
         {R"({"a":1})", R"({"a": -20, "b": "x"})", "{\n  \"a\": 1\n}"},
         {"{}", R"({"b":"x"})", R"({"a":1.5})", R"({"a":1,"c":2})", R"({"a":1,})", R"({"a":1}  )"});
  expect(R"({"enum":["x",1,null,{"a":[1]}]})", {R"("x")", "1", "null", R"({"a":[1]})"},
         {R"("y")", "2", "{}"});
  expect(R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", "\"\xC3\xA4\xC3\xB6\"", R"("\u00e4\n")"}, {R"("a")", R"("abcd")"});
  expect(R"({"type":"string","pattern":"^a.c$"})", {R"("abc")", R"("a\"c")"}, {R"("ab")", R"("abcd")"});
  expect(R"({"type":"number","minimum":-1.5,"exclusiveMaximum":20})", {"-1.5", "0", "19.99", "-0.3", "-1"},
         {"-1.51", "20", "20.0", "200", "-2"});
  expect(R"({"type":"integer","minimum":7,"maximum":123})", {"7", "9", "10", "99", "123"},
         {"6", "124", "1000", "-7"});
  expect(R"({"type":"number","multipleOf":0.25})", {"0.5", "1", "0.75", "12.250"}, {"0.3", "0.125"});
  expect(R"({"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2})",
         {"[true]", "[true, false]"}, {"[]", "[true,true,true]"});
  expect(R"({"type":"array","prefixItems":[{"type":"null"},{"type":"boolean"}],"items":false})",
         {"[]", "[null]", "[null,true]"}, {"[true]", "[null,true,1]"});
  expect(R"({"type":"array","contains":{"const":1},"items":{"type":"integer"}})", {"[1]", "[2,1,3]"},
         {"[]", "[2]"});
  expect(
      R"({"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"additionalProperties":false}},
            "$ref":"#/$defs/n"})",
      {"{}", R"({"next":{"next":{}}})"}, {R"({"next":1})"});
  expect(R"({"anyOf":[{"type":"string"},{"type":"null"}]})", {R"("a")", "null"}, {"1"});
  expect(R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", {"1", "2.5"}, {"3", "1.5"});
  expect(R"({"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"integer"}})",
         {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})", R"({"a":"x"})"});
  expect(
      R"({"type":"object","properties":{"kind":{"const":"a"}},"patternProperties":{"^x":{"type":"integer"}},
            "additionalProperties":{"type":"string"}})",
      {R"({"kind":"a","x1":2,"y":"s"})"}, {R"({"x1":"s"})", R"({"y":2})", R"({"kind":"b"})"});
  expect(R"({"not":{"type":"string"}})", {"1", "{}", "[]"}, {R"("a")"});
  expect(R"({"type":"string","format":"date"})", {R"("2024-02-29")"}, {R"("2023-02-29")", R"("x")"});
  expect(R"({"type":"string","format":"uri-template"})", {R"("/a/{id}{?q,r*}")", R"("")", R"("{+x:3}/%41")"},
         {R"("/a/{id")", R"("{}")", R"("a b")"});
  expect(R"({"type":"string","format":"byte"})", {R"("")", R"("aGk=")", R"("aGVsbG8h")"},
         {R"("aGk")", R"("a=")"});
  expect(R"({"type":"string","format":"password","maxLength":1})", {R"("a")"}, {R"("ab")"});
  expect(R"({"type":"integer","format":"int32"})", {"2147483647", "-2147483648", "0"},
         {"2147483648", "-2147483649", "1.5"});
  expect(R"({"type":"number","format":"uint8","minimum":7})", {"7", "255"}, {"6", "256", "7.5", "-1"});
  expect(R"({"type":"number","format":"double"})", {"1.5e300"}, {R"("x")"});
  expect(R"({"type":["integer","string"],"format":"date"})", {"7", R"("2024-02-29")"}, {R"("x")"});
  expect("true", {"1", R"({"a":[null,{"b":"c"}]})"}, {"", "x", "{]"});
}

TEST(Schema, RefusesByNameAndPath) {
  const auto error = [](const char* schema) { return error_of(Kind::json_schema, schema); };
  EXPECT_NE(error(R"({"properties":{"a":{"uniqueItems":true}}})").find("#/properties/a/uniqueItems"),
            std::string::npos);
  EXPECT_NE(error(R"({"propertis":{}})").find("#/propertis"), std::string::npos);
  EXPECT_NE(error(R"({"propertis":{}})").find("properties?"), std::string::npos);
  EXPECT_NE(error(R"({"$ref":"other.json"})").find("#/$ref"), std::string::npos);
  EXPECT_NE(error(R"({"$ref":"#"})").find("itself"), std::string::npos);
  EXPECT_NE(error(R"({"type":"strin"})").find("#/type"), std::string::npos);
  EXPECT_NE(error(R"({"type":"string","format":"color"})").find("#/format"), std::string::npos);
  EXPECT_NE(error(R"({"type":"integer","format":"int33"})").find("#/format"), std::string::npos);
  EXPECT_NE(error(R"({"type":"string","pattern":"(a)\\1"})").find("#/pattern"), std::string::npos);
  EXPECT_NE(error(R"({"type":"object","required":["a"],"properties":{"a":false}})").find("no text"),
            std::string::npos);
  EXPECT_NE(error("false").find("no text"), std::string::npos);
  EXPECT_NE(error("{").find("the schema"), std::string::npos);
}

TEST(StructuralTag, TextsInAndOut) {
  expect_texts(
      Kind::structural_tag,
      R"({"structures":[{"begin":"<tool>","schema":{"type":"integer"},"end":"</tool>"}],"triggers":["<tool>"]})",
      {"", "hello", "x<tool>12</tool>y", "<tool>1</tool><tool>2</tool>"}, {"<tool>", "<tool>x</tool>"});
  expect_texts(Kind::structural_tag,
               R"({"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"any_text"},
                  {"type":"tag","begin":"<a>","content":{"type":"any_text"},"end":"</a>"},
                  {"type":"or","elements":[{"type":"const_string","value":"!"},{"type":"regex","pattern":"[0-9]"}]}]}})",
               {"<a></a>!", "hi<a>x</b></a>7"}, {"<a></a>", "x!"});
  const auto format = [](const std::string& text) { return R"({"format":)" + text + "}"; };
  const auto of = [&](const std::string& type, const std::string& more = "") {
    return format(R"({"type":")" + type + R"(","content":{"type":"const_string","value":"ab"})" + more + "}");
  };
  expect_texts(Kind::structural_tag, of("optional"), {"", "ab"}, {"abab", "a"});
  expect_texts(Kind::structural_tag, of("star"), {"", "ab", "ababab"}, {"aba"});
  expect_texts(Kind::structural_tag, of("plus"), {"ab", "abab"}, {""});
  expect_texts(Kind::structural_tag, of("repeat", R"(,"min":2,"max":3)"), {"abab", "ababab"},
               {"ab", "abababab"});
  expect_texts(Kind::structural_tag, of("repeat", R"(,"min":2,"max":-1)"), {"abab", "abababab"}, {"ab"});
  EXPECT_NE(error_of(Kind::structural_tag, of("repeat", R"(,"min":3,"max":2)")).find("format.min"),
            std::string::npos);
  EXPECT_NE(error_of(Kind::structural_tag, of("star", R"(,"least":1)")).find("format.least"),
            std::string::npos);
  EXPECT_NE(
      error_of(Kind::structural_tag, format(R"({"type":"json_schema","json_schema":{},"style":"qwen_xml"})"))
          .find("format.style"),
      std::string::npos);
}

TEST(Mask, SaysWhatAcceptDoes) {
  for (const char* schema :
       {R"({"type":"object","properties":{"name":{"type":"string","maxLength":4}},"required":["name"]})",
        R"({"type":"object","properties":{"name":{"type":"string"},"me":{"type":"number"}}})", "true",
        R"({"type":"string","pattern":"^(abc)*$"})"}) {
    Matcher matcher(compile(Kind::json_schema, schema));
    uint64_t random = 7;
    for (int step = 0; step < 60 && !matcher.ended(); ++step) {
      expect_mask(matcher);
      if (testing::Test::HasFatalFailure()) return;
      const TokenTrie& trie = matcher.constraint().trie();
      std::vector<uint32_t> mask(trie.mask_words());
      matcher.fill_mask(mask);
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < trie.vocab(); ++id)
        if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
      ASSERT_FALSE(allowed.empty()) << schema << " at step " << step;
      random = random * 6364136223846793005u + 1442695040888963407u;
      ASSERT_TRUE(matcher.accept(allowed[(random >> 33) % allowed.size()]));
    }
  }
}

TEST(Mask, SpecialTokensOnlyWhereTheyAreNamed) {
  const auto trie = small_vocabulary();
  const int32_t call = trie->vocab() - 2, end = trie->vocab() - 1;
  Matcher text(compile(Kind::regex, ".*"));
  EXPECT_FALSE(text.accept(call));
  EXPECT_TRUE(text.accept(end));
  Matcher tag(compile(Kind::structural_tag,
                      R"({"type":"structural_tag","format":{"type":"const_string","value":"a<|call|>b"}})"));
  EXPECT_TRUE(tag.accept('a'));
  EXPECT_FALSE(tag.accept('<'));
  EXPECT_FALSE(tag.accept(end));
  EXPECT_TRUE(tag.accept(call));
  EXPECT_TRUE(tag.accept('b'));
  EXPECT_TRUE(tag.accept(end));
}

TEST(Mask, RollBackAndResetKeepTheState) {
  ConstraintSpec spec;
  spec.kind = Kind::json_schema;
  spec.text = R"({"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}})";
  Grammar grammar;
  const auto json = text::parse_json(spec.text, "schema");
  const auto start = add_json_schema(grammar, *json, {});
  grammar.set_start(*start);
  ASSERT_TRUE(grammar.finish());
  // So little memory that it forgets its states between most calls.
  const auto tight = std::make_shared<Constraint>(std::move(grammar), small_vocabulary(), 20'000);
  Matcher a(tight), b(compile(Kind::json_schema, spec.text));
  const auto masks_equal = [&] {
    std::vector<uint32_t> of_a(tight->trie().mask_words()), of_b(of_a.size());
    a.fill_mask(of_a);
    b.fill_mask(of_b);
    return of_a == of_b;
  };
  const std::string text = "[{\"name\": \"hello\"}, {}, {\"x\": [1, {\"y\": null}]}]";
  for (const char c : text) {
    ASSERT_TRUE(a.accept(static_cast<uint8_t>(c)));
    ASSERT_TRUE(b.accept(static_cast<uint8_t>(c)));
    ASSERT_TRUE(masks_equal());
  }
  for (size_t left = text.size(); left > 3; left -= 3) {
    a.roll_back(3);
    b.roll_back(3);
    ASSERT_TRUE(masks_equal());
  }
  EXPECT_GT(tight->counts().resets, 0);
}

}  // namespace
}  // namespace fovea::grammar
