// The template language feature by feature. tests/text compares much more of it with other implementations;
// this file tests its limits: what is refused, and with which message.
#include <gtest/gtest.h>

#include "fovea/result.h"
#include "text/chat_template.h"

namespace fovea {
namespace {

std::string render(std::string_view source, std::string_view variables = "{}") {
  auto chat_template = ChatTemplate::parse(source, "T");
  if (!chat_template) return chat_template.error().message;
  auto text = (*chat_template)->render_json(variables);
  return text ? *text : text.error().message;
}

struct Case {
  const char* source;
  const char* expected;
};

void expect_all(std::initializer_list<Case> cases, std::string_view variables = "{}") {
  for (const Case& c : cases)
    EXPECT_EQ(render(c.source, variables), c.expected) << c.source;
}

// A substring of the message is enough.
void expect_refused(std::initializer_list<Case> cases, std::string_view variables = "{}") {
  for (const Case& c : cases) {
    const std::string message = render(c.source, variables);
    EXPECT_TRUE(message.starts_with("T, line 1, column ")) << c.source << "\n" << message;
    EXPECT_NE(message.find(c.expected), std::string::npos) << c.source << "\n" << message;
  }
}

TEST(JinjaLanguage, Numbers) {
  expect_all({{"{{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1_000 }} {{ 0xf_f }}", "31 15 5 1000 255"},
              {"{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 2 ** -1 }}", "-4 2 -2 3.5 0.5"},
              {"{{ 1e16 }} {{ 1e15 }} {{ 0.1 + 0.2 }} {{ -0.0 }} {{ 100.0 }}",
               "1e+16 1000000000000000.0 0.30000000000000004 -0.0 100.0"},
              {"{{ '4_2' | int }} {{ '0b11' | int(0, 2) }} {{ '1_0.5' | float }}", "42 3 10.5"}});
  expect_refused({{"{{ 007 }}", "leading zeros"},
                  {"{{ 99999999999999999999 }}", "too large"},
                  {"{{ 1e20 | int }}", "64 bits"},
                  {"{{ x | int }}", "'x' is undefined"},
                  {"{{ 1 // 0 }}", "division by zero"}});
}

TEST(JinjaLanguage, GeneratorsAreReadOnce) {
  expect_all({{"{% set g = [1, 2] | map('string') %}{{ g | list }}{{ g | list }}", "['1', '2'][]"},
              {"{% set g = [1, 2, 3] | select('odd') %}{{ g | first }}{{ g | list }}", "1[3]"},
              {"{{ 'yes' if [] | select else 'no' }}", "yes"},
              {"{{ 'yes' if [] | select | list else 'no' }}", "no"},
              {"{{ 2 in ([1, 2, 3] | select) }}", "True"},
              {"{% for x in [1, 2] | reverse %}{{ x }}{{ loop.length }}{% endfor %}", "2212"}});
  expect_refused({{"{{ [1] | select | length }}", "put | list before it"},
                  {"{{ [1] | select | last }}", "put | list before it"},
                  {"{{ [1] | select | tojson }}", "generator has no JSON form"}});
}

TEST(JinjaLanguage, MacrosTakeWhatIsLeftOver) {
  expect_all(
      {{"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "1(2,){'k': 3}"},
       {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1], **{'b': 2}) }}{{ m(3) }}", "1233"},
       {"{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(y) m() %}{{ y }}{% endcall %}", "[x]"},
       {"{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}", "m('a', 'b')"}});
  expect_refused({{"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "takes at most 1 arguments, 2 were given"},
                  {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "has no argument 'b'"},
                  {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "or it is given by position too"},
                  {"{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "never calls caller()"},
                  {"{% macro m(a, a) %}{% endmacro %}", "duplicate parameter"},
                  {"{% macro m(caller) %}{% endmacro %}", "needs a default"},
                  {"{{ range(**5) }}", "must be a dict, not int"},
                  {"{{ range(**{1: 2}) }}", "a key of the dict after '**'"},
                  {"{{ dict(a=1, **{'a': 2}) }}", "given twice"},
                  {"{{ dict(a=1, a=2) }}", "given twice"},
                  {"{{ range(*[1], *[2]) }}", "one '*' argument"}});
}

TEST(JinjaLanguage, Loops) {
  expect_all(
      {{"{% for x in [1, 1, 2] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}", "12"},
       {"{% for x in [1] %}{% break %}{% else %}e{% endfor %}", "e"},
       {"{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}", ""},
       {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "abab"},
       {"{% set j = joiner('-') %}{{ j() }}a{{ j() }}b", "a-b"},
       {"{% for g, xs in [3, 1, 3] | groupby(0, default=0) %}{% endfor %}ok", "ok"},
       {"{% for r in [1, 2, 3] | batch(2, 0) %}{{ r }}{% endfor %}", "[1, 2][3, 0]"},
       {"{% generation %}{% set x = 1 %}{% endgeneration %}{{ x is defined }}", "False"}});
  expect_refused(
      {{"{% for loop in [1] %}{% endfor %}", "'loop' is the loop itself"},
       {"{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "outside of a loop"},
       {"{{ cycler() }}", "at least one"},
       {"{{ [1] | batch(0) }}", "at least 1"},
       {"{{ [1] | slice(1000000) }}", "at most 100000"},
       {"{% set true = 1 %}", "is a constant"}});
}

TEST(JinjaLanguage, PercentFormats) {
  expect_all({{"{{ '%s-%05.1f|%-4d|%+d|%x|%%' % ('a', 2.25, 7, 3, 255) }}", "a-002.2|7   |+3|ff|%"},
              {"{{ '%(a)s%(b)r' % {'a': 1, 'b': 'x'} }}", "1'x'"},
              {"{{ '%*d|%.3s|%c' % (4, 7, 'abcdef', 65) }}", "   7|abc|A"},
              {"{{ '%s %s' | format(1, 2) }}", "1 2"}});
  expect_refused({{"{{ '%s %s' % 1 }}", "more conversions than there are values"},
                  {"{{ '%s' % (1, 2) }}", "not all values"},
                  {"{{ '%d' % 'x' }}", "unknown format code 'd' for str"},
                  {"{{ '%y' % 1 }}", "unknown format code 'y'"},
                  {"{{ '%' % 1 }}", "incomplete format"},
                  {"{{ '%(a' % {} }}", "has no ')'"},
                  {"{{ '%(a)s' % {} }}", "which the dict does not have"},
                  {"{{ '%(a)s' % 1 }}", "must be a dict"},
                  {"{{ '%99999999999d' % 1 }}", "larger than"},
                  {"{{ '%.9999f' % 1 }}", "larger than 1000"},
                  {"{{ '%*d' % (-99999999999, 1) }}", "larger than"},
                  {"{{ '%c' % 'ab' }}", "one character"},
                  {"{{ '%c' % -1 }}", "not a character"},
                  {"{{ '%#.2f' % 1.5 }}", "not supported"}});
}

TEST(JinjaLanguage, BraceFormats) {
  expect_all({{"{{ '{} {1} '.format }}", "<function format>"},
              {"{{ '{}{}{{}}'.format(1, 'a') }}", "1a{}"},
              {"{{ '{0:>5}|{1:^5}|{0:*<4}'.format('a', 'b') }}", "    a|  b  |a***"},
              {"{{ '{x[k]:{w}}|'.format(x={'k': 3}, w=4) }}", "   3|"},
              {"{{ '{:,}|{:.2%}|{:08.3f}|{:#x}'.format(1234567, 0.5, -2.5, 255) }}",
               "1,234,567|50.00%|-002.500|0xff"}});
  expect_refused({{"{{ '{'.format() }}", "single '{'"},
                  {"{{ '}'.format() }}", "single '}'"},
                  {"{{ '{}'.format() }}", "more fields than"},
                  {"{{ '{0}{}'.format(1, 2) }}", "mixes numbered fields"},
                  {"{{ '{a}'.format(b=1) }}", "names 'a', which is not given"},
                  {"{{ '{:z}'.format('x') }}", "unknown format code 'z'"},
                  {"{{ '{:5}'.format(none) }}", "takes no format"},
                  {"{{ '{:{:{}}}'.format(1, 2, 3) }}", "nested too deep"},
                  {"{{ '{:99999999999}'.format(1) }}", "larger than"},
                  {"{{ '{!q}'.format(1) }}", "allowed are !r, !s and !a"},
                  {"{{ '{0.x}'.format(1) }}", "has no attribute 'x'"},
                  {"{{ '{0[}'.format(1) }}", "has no name"}});
}

TEST(JinjaLanguage, StringMethods) {
  expect_all(
      {{"{{ ' a b  c '.rsplit(none, 1) }}{{ 'a.b.c'.rsplit('.', 1) }}", "[' a b', 'c']['a.b', 'c']"},
       {"{{ 'h\u00e9llo'.find('l', 3) }}{{ 'aba'.rindex('a') }}{{ 'abab'.count('ab', 1) }}", "321"},
       {"{{ 'abc'.startswith(('x', 'b'), 1) }}{{ 'abc'.endswith('b', 0, 2) }}", "TrueTrue"},
       {"{{ 'aBc'.swapcase() }}{{ 'a\\tb'.expandtabs(2) }}{{ 'x\\ny'.splitlines(true) }}",
        "AbCa b['x\\n', 'y']"},
       {"{{ '\u00b2'.isdigit() }}{{ '\u00b2'.isdecimal() }}{{ 'A1'.isidentifier() }}{{ 'Ab Cd'.istitle() }}",
        "TrueFalseTrueTrue"}});
  expect_refused({{"{{ 'abc'.index('z') }}", "substring not found"},
                  {"{{ 'abc'.startswith(['a']) }}", "must be a str, not list"},
                  {"{{ 'abc'.split('') }}", "empty separator"},
                  {"{{ 'a'.expandtabs(9999999) }}", "at most 1000"},
                  {"{{ 'a'.encode() }}", "has no attribute 'encode'"}});
}

TEST(JinjaLanguage, NothingCanBeChanged) {
  for (const char* call : {"list.append(1)", "list.pop()", "list.sort()", "list.clear()", "dict.update({})",
                           "dict.pop('a')", "dict.setdefault('a', 1)", "dict.clear()"}) {
    const std::string source = "{% set list = [1] %}{% set dict = {'a': 1} %}{{ " + std::string(call) + " }}";
    EXPECT_NE(render(source).find("which templates must not; make a new one"), std::string::npos) << call;
  }
}

TEST(JinjaLanguage, StatementsOfOtherFilesAreRefusedByName) {
  expect_refused(
      {{"{% include 'x' %}", "statement 'include' joins templates"},
       {"{% import 'x' as y %}", "statement 'import' joins templates"},
       {"{% from 'x' import y %}", "statement 'from' joins templates"},
       {"{% extends 'x' %}", "statement 'extends' joins templates"},
       {"{% block x %}{% endblock %}", "statement 'block' joins templates"},
       {"{% autoescape true %}{% endautoescape %}", "unknown statement 'autoescape'; supported: if, for"},
       {"{{ [1, 2] | random }}", "'random' is not supported in chat templates"},
       {"{{ 'x' | wordwrap }}", "'wordwrap' is not supported"}});
  EXPECT_EQ(render("{% do range(3) %}ok"), "ok");
}

TEST(JinjaLanguage, TestsAndJson) {
  expect_all({{"{{ 2.5 is odd }}{{ 3 is odd }}{{ 'A1' is upper }}{{ [] | select is iterable }}",
               "FalseTrueTrueTrue"},
              {"{{ {(1, 2): 'x'}[1, 2] }}", "x"},
              {"{{ d | tojson }}", R"({"b": 1, "a": [1.0, null], "é": "<&>"})"},
              {"{{ d | tojson(indent=1, sort_keys=true, ensure_ascii=true) }}",
               "{\n \"a\": [\n  1.0,\n  null\n ],\n \"b\": 1,\n \"\\u00e9\": \"<&>\"\n}"}},
             R"({"d": {"b": 1, "a": [1.0, null], "é": "<&>"}})");
  EXPECT_EQ(render("{{ n }} {{ [n] | tojson }}", R"({"n": 18446744073709551615})"),
            "18446744073709551615 [18446744073709551615]");
  expect_refused({{"{{ range | tojson }}", "no JSON form"},
                  {"{{ {(1, 2): 3} | tojson }}", "a key is a tuple"},
                  {"{{ 1 | tojson(bogus=1) }}", "has no argument 'bogus'"},
                  {"{{ x | tojson }}", "'x' is undefined"}});
}

}  // namespace
}  // namespace fovea
