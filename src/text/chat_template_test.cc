#include "text/chat_template.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

std::string render(std::string_view source, std::string_view variables = "{}") {
  auto chat_template = ChatTemplate::parse(source);
  if (!chat_template) return "error: " + chat_template.error().message;
  auto text = (*chat_template)->render_json(variables);
  return text ? *text : "error: " + text.error().message;
}

TEST(ChatTemplate, RendersMessages) {
  auto chat_template = ChatTemplate::parse(
      "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  ASSERT_TRUE(chat_template);
  EXPECT_EQ(*(*chat_template)->render_json(R"({"messages": [{"role": "system", "content": " be kind "},
                {"role": "user", "content": "hi"}], "bos_token": "<s>", "add_generation_prompt": true})"),
            "<s><system>be kind\n<user>hi\n<assistant>");
  EXPECT_EQ(*(*chat_template)->render_json("{}"), "");
  EXPECT_FALSE((*chat_template)->render_json("[]"));
  EXPECT_FALSE((*chat_template)->render_json("{"));
}

TEST(ChatTemplate, WhiteSpaceControl) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {%- if true -%}\n  b\n  {%- endif -%}\n  c"), "abc");
  EXPECT_EQ(render("a {{- 1 -}} b"), "a1b");
  EXPECT_EQ(render("x {%+ if true +%}\ny{% endif %}"), "x \ny");
  EXPECT_EQ(render("a\r\n{# c #}\r\nb"), "a\nb");
}

TEST(ChatTemplate, ScopesAndNamespaces) {
  EXPECT_EQ(render("{% set x = 1 %}{% for i in [1, 2] %}{% set x = i + 5 %}{% endfor %}{{ x }}"), "1");
  EXPECT_EQ(
      render("{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}"),
      "4");
}

TEST(ChatTemplate, ErrorsNameLineAndColumn) {
  EXPECT_EQ(render("a\nb {{ x.y }}"), "error: chat template, line 2, column 7: 'x' is undefined");
  EXPECT_NE(render("é\n\n é{% oops %}").find("line 3, column 6: unknown statement 'oops'"),
            std::string::npos);
  EXPECT_EQ(render("{{ raise_exception('no\nway') }}"),
            "error: chat template, line 1, column 19: the template raised an exception: no way");
  EXPECT_NE(render("{% if %}").find("line 1, column 7"), std::string::npos);
}

TEST(ChatTemplate, LoopsAreBounded) {
  EXPECT_NE(render("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
                .find("steps"),
            std::string::npos);
  EXPECT_NE(render("{{ range(100001) }}").find("range has more than"), std::string::npos);
  EXPECT_NE(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nested deeper"),
            std::string::npos);
  EXPECT_NE(render("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").find("nested deeper"),
            std::string::npos);
}

TEST(ChatTemplate, SizesAreBounded) {
  EXPECT_NE(render("{{ 'x' * 100000000 }}").find("too large"), std::string::npos);
  EXPECT_NE(
      render("{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}")
          .find("large"),
      std::string::npos);
  EXPECT_NE(render("{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% "
                   "endfor %}{{ n.s }}")
                .find("large"),
            std::string::npos);
  EXPECT_NE(render("{% set n = namespace(s=[1]) %}{% for i in range(500) %}{% set n.s = [n.s] %}{% endfor %}")
                .find("nested deeper"),
            std::string::npos);
  EXPECT_NE(render("{% for i in range(9000) %}{{ '%8000s' * 1000 }}{% endfor %}").find("larger than 32 MiB"),
            std::string::npos);
  EXPECT_NE(
      render("{% for i in range(99999) %}{% set x = 'abcdefgh' * 100000 %}{% endfor %}").find("512 MiB"),
      std::string::npos);
  EXPECT_NE(render("{{ 'x'.replace('', 'y' * 20000000) }}").find("too large"), std::string::npos);
}

TEST(ChatTemplate, NestingIsBounded) {
  EXPECT_NE(
      render("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}").find("nested deeper"),
      std::string::npos);
  EXPECT_NE(render("{{ " + std::string(5000, '-') + "1 }}").find("nested deeper"), std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i)
    sum += " + 1";
  EXPECT_NE(render(sum + " }}").find("expression deeper"), std::string::npos);
  std::string ifs;
  for (int i = 0; i < 5000; ++i)
    ifs += "{% if true %}";
  EXPECT_NE(render(ifs).find("nested deeper"), std::string::npos);
}

TEST(ChatTemplate, ObjectsThatHoldEachOtherAreFreed) {
  // Leaks show under the address sanitizer.
  EXPECT_EQ(
      render("{% set n = namespace() %}{% set n.me = n %}{% set n.list = [n] %}{% macro m() %}{% endmacro %}"
             "{% set n.m = m %}{% for x in [1] recursive %}{% set n.loop = loop %}{% endfor %}{{ "
             "n.me.me.list | length }}"),
      "1");
}

TEST(ChatTemplate, LongChainsOfScopesAreFreedWithoutRecursion) {
  EXPECT_EQ(render("{% set n = namespace(x=none) %}{% for i in range(90000) %}{% set before = n.x %}"
                   "{% for j in [1] recursive %}{% set n.x = loop %}{% endfor %}{% endfor %}done"),
            "done");
}

TEST(ChatTemplate, RecursiveLoopsSeeTheScopeTheyWereWrittenIn) {
  EXPECT_EQ(render("{% for tree in [[1, [2, [3]]]] %}{% set mark = '!' %}{% for x in tree recursive %}"
                   "{{ loop(x) if x is not number else x ~ mark }}{% endfor %}{% endfor %}"),
            "1!2!3!");
}

TEST(ChatTemplate, MissingNamesOfAnySizeStaySmall) {
  EXPECT_NE(render("{% set name = 'x' * 1000000 %}{% set n = namespace(all=[]) %}{% for i in range(9000) %}"
                   "{% set n.all = n.all + [n[name]] %}{% endfor %}")
                .find("512 MiB"),
            std::string::npos);
  EXPECT_NE(
      render("{% set name = 'x' * 1000000 %}{{ range(9000) | map(attribute=name) | list }}").find("512 MiB"),
      std::string::npos);
  EXPECT_LT(render("{{ missing['x' * 1000000] }}").size(), 1000u);
}

TEST(ChatTemplate, PaddingIsOneCharacter) {
  EXPECT_EQ(render("{{ 'ab'.ljust(4, '-') }}{{ 'ab'.rjust(4, '\u00e9') }}{{ 'abc'.center(6) }}"),
            "ab--\u00e9\u00e9ab abc  ");
  EXPECT_NE(render("{{ 'x'.ljust(1000000, 'y' * 1000000) }}").find("one character"), std::string::npos);
  EXPECT_NE(render("{{ 'x'.ljust(1000000, '') }}").find("one character"), std::string::npos);
  EXPECT_EQ(render("{{ 'x'.ljust(-9223372036854775807 - 1) }}"), "x");
  EXPECT_NE(render("{{ [[[[[1]]]]] | tojson(indent='x' * 20000000) }}").find("too large"), std::string::npos);
}

TEST(ChatTemplate, IntegersDoNotWrap) {
  EXPECT_EQ(render("{{ 9223372036854775807 }}"), "9223372036854775807");
  for (const char* expression :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2", "2 ** 63",
        "(-9223372036854775807 - 1) // -1", "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1) | abs",
        "9223372036854775807 | round(-19)"}) {
    EXPECT_NE(render("{{ " + std::string(expression) + " }}").find("64 bits"), std::string::npos)
        << expression;
  }
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
}

TEST(ChatTemplate, StrftimeNow) {
  const std::string year = render("{{ strftime_now('%Y') }}");
  EXPECT_EQ(year.size(), 4u);
  EXPECT_EQ(year.find_first_not_of("0123456789"), std::string::npos);
  EXPECT_NE(render("{{ strftime_now('%99999d') }}").find("error"), std::string::npos);
  EXPECT_NE(render("{{ strftime_now('%') }}").find("error"), std::string::npos);
}

TEST(ChatTemplate, UnknownNamesAreReported) {
  EXPECT_NE(render("{{ x | nofilter }}").find("unknown filter 'nofilter'"), std::string::npos);
  EXPECT_NE(render("{{ x is notest }}").find("unknown test 'notest'"), std::string::npos);
  EXPECT_NE(render("{% include 'x' %}").find("statement 'include' joins templates"), std::string::npos);
  EXPECT_NE(render("{{ d.pop('x') }}", R"({"d": {"x": 1}})").find("error"), std::string::npos);
}

}  // namespace
}  // namespace fovea
