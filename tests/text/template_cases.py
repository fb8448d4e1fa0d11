"""Templates and variables: whole templates of the shapes that models ship, and one line per feature."""
import json
import pathlib

import template_features
from template_conversations import CONVERSATIONS

HERE = pathlib.Path(__file__).resolve().parent

VALUES = {
    "text": "Hello, World", "empty": "", "space": "  a b  c \n", "uni": "Ünïcödé 中文 🙂 straße", "n": 7, "neg": -7, "zero": 0, "f": 2.5,
    "big": 1e20, "small": 1.5e-7, "huge": 2 ** 64 - 1, "tiny": -(2 ** 70), "yes": True, "no": False, "nothing": None, "list": [3, 1, 2], "words": ["b", "A", "c", "a"],
    "nested": {"a": {"b": [10, {"c": "deep"}]}, "items": "shadow"}, "dict": {"x": 1, "y": 2.0, "z": [True, None, "q'\"\n"]},
    "people": [{"name": "Eve", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Al", "age": 30, "tags": []}],
    "mixed": [1, "1", 1.0, True, None, [1], {"a": 1}], "lines": "one\ntwo\n\nthree\r\nfour", "html": "<b>\"x\" & 'y'</b>",
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]}, {"v": 5, "kids": []}],
}

# Expressions, each rendered as {{ expression }}.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 // 2, -7 // 2, 7 % 3, -7 % 3, 7 % -3, 7 / 2, 2 ** 10, 2 ** -1, -2 ** 2
7.5 // 2, -7.5 % 2, 7.5 % -2, 1e3, 1_000, 0.1 + 0.2, 1.0, 100.0, 1e16, 1e15, 123456789.125, 1e-4, 1e-5
huge, huge ~ "", [huge, tiny], huge | tojson, {"a": tiny} | tojson(indent=2), huge | string, huge > n, huge | length
n + f, n * f, n - f, big, small, -f, +n, f * 1e300 * 1e10
"a" ~ 1 ~ none ~ true ~ 1.5 ~ [1, "x"] ~ {"k": (1,)}
"ab" * 3, 3 * "ab", [1] * 3, "ab" * 0, "ab" * -1
[1, 2] + [3], (1, 2) + (3,), (), (1,), [], {}
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, true == 1, "a" < "b", [1, 2] < [1, 3], 1 != 2, "1" == 1, none == none
not true, not empty, not list, yes and no, yes or no, empty or "x", 0 or none, none and 1
3 in list, 9 in list, "ell" in text, "" in text, "x" in dict, 1 in dict, 9 not in list, "a" not in "abc"
"yes" if yes else "no", "x" if no, ("a" if n > 5 else "b") ~ "c", 1 if no else 2 if no else 3
list[0], list[-1], list[5], text[0], text[-1], uni[9], nested.a.b[1].c, nested["a"]["b"][0], nested.a.b.1.c
list[1:], list[:2], list[::-1], list[::2], list[-2:], text[1:4], text[::-1], uni[::-1], text[10:2], text[100:], list[:-1]
uni[-3:-1], list[5:1:-1], text[None:3], text[8:None], (1,2,3)[1:], text[::3], text[-1::-2]
undefined_name, undefined_name | default("d"), empty | default("d"), empty | default("d", true), nothing | default("d")
undefined_name is defined, text is defined, undefined_name is undefined, nothing is none, text is not none
nested.missing is defined, nested.missing, nested["missing"] is undefined, dict.x is defined
text is string, n is string, n is number, f is number, yes is number, n is integer, yes is integer, f is float
dict is mapping, list is mapping, list is iterable, text is iterable, n is iterable, list is sequence, dict is sequence
yes is true, n is true, no is false, yes is boolean, n is boolean, n is odd, n is even, 9 is divisibleby 3, 9 is divisibleby(2)
n is eq 7, n is equalto(7), n is ne 7, n is gt 5, n is lt(5), n is ge 7, n is le 7, 3 is in list, 3 is in [1], n == 7 is true
"ABC" is upper, "abc" is lower, "aBc" is upper, namespace is callable, text is callable, "upper" is filter, "odd" is test
text.upper(), text.lower(), text.title(), text.capitalize(), "they're bill's".title(), "hELLO wORLD".capitalize()
space.strip() ~ "|", space.lstrip() ~ "|", space.rstrip() ~ "|", "xxaxx".strip("x"), "abcab".lstrip("ab"), "中a中".strip("中")
text.split(), text.split(","), space.split(), space.split(" "), "a,b,,c".split(","), "a b c".split(None, 1), "a,b,c".split(",", 1)
"a,b,c".rsplit(",", 1), "a b c".rsplit(" "), lines.splitlines(), "".split(), "".split(","), "  a  b ".split(None, 1)
text.startswith("Hell"), text.endswith("x"), text.startswith(("x", "H")), text.startswith(""), text.find("o"), text.find("zz")
text.rfind("o"), text.count("l"), text.count(""), uni.find("中"), text.replace("l", "L"), text.replace("l", "L", 1), "ab".replace("", "-")
",".join(words), "".join([]), "-".join("abc"), "a-b".partition("-"), "ab".partition("-"), "a-b-c".rpartition("-")
"12".isdigit(), "1a".isdigit(), "abc".isalpha(), " ".isspace(), "".isspace(), "7".zfill(3), "-7".zfill(4), "a".ljust(3) ~ "|"
"prefix-x".removeprefix("prefix-"), "x.txt".removesuffix(".txt"), "a".center(4) ~ "|", "ab".center(5) ~ "|", "a".rjust(3, "*")
dict.items() | list, dict.keys() | list, dict.values() | list, dict.get("x"), dict.get("q"), dict.get("q", 5), dict | items | list
nested.items() | list | length, nested["items"], dict | length, list | length, text | count, uni | length, undefined_name | length
list | sort, words | sort, words | sort(case_sensitive=true), list | sort(reverse=true), people | sort(attribute="age") | map(attribute="name") | list
words | unique | list, [1, 1.0, true, "1"] | unique | list, people | map(attribute="name") | join(", "), people | map(attribute="tags", default="none") | list
words | map("upper") | list, list | map("string") | list, ["1", "x"] | map("int", default=9) | list, [" a ", "b "] | map("trim") | join("|")
list | select("odd") | list, list | reject("odd") | list, [0, 1, "", "x"] | select | list, list | select("gt", 1) | list, [1, none] | reject("none") | list
people | selectattr("tags") | list | length, people | selectattr("age", "equalto", 30) | map(attribute="name") | list
people | rejectattr("age", "gt", 26) | map(attribute="name") | list, people | selectattr("tags", "defined") | list | length
list | first, list | last, text | first, text | last, [] | first, list | reverse | list, text | reverse, list | sum, people | sum("age")
list | min, list | max, words | max, people | max(attribute="age"), [] | max, list | join, list | join("-"), words | join(d=", ")
dict | dictsort, {"b": 1, "A": 2} | dictsort, {"b": 1, "A": 2} | dictsort(true), {"b": 1, "A": 2} | dictsort(by="value"), {"b": 1, "A": 2} | dictsort(reverse=true)
"3" | int, "3.9" | int, "x" | int, "x" | int(5), "0x1f" | int(base=16), 3.9 | int, "-7" | int, none | int, "2.5" | float, "x" | float, 3 | float, yes | int
n | string, none | string, list | string, f | abs, neg | abs, 2.5 | round, 3.5 | round, 2.345 | round(2), 2.3 | round(method="ceil"), 2.7 | round(0, "floor"), 1234.5 | round(-2)
lines | indent, lines | indent(2, true), lines | indent(2, blank=true), "x" | indent, "a\nb" | indent("> "), lines | trim | length
text | upper, text | lower, text | title, "foo-bar (baz) it's" | title, text | capitalize, text | replace("l", "L"), text | replace("l", "L", 1), " x " | trim, "xyx" | trim("x")
html | e, html | escape, html | safe, text | list, dict | list, list | list, "abc" | list | join("."), none | default(1, true)
dict | tojson, list | tojson, text | tojson, uni | tojson, none | tojson, yes | tojson, f | tojson, big | tojson, html | tojson, mixed | tojson, [] | tojson, {} | tojson
dict | tojson(indent=2), nested | tojson(indent=4), [] | tojson(indent=2), {"a": []} | tojson(indent=2), [[1, 2], {}] | tojson(indent=1)
uni | tojson(ensure_ascii=true), dict | tojson(separators=(",", ":")), {"b": 1, "a": 2} | tojson(sort_keys=true), "\x00\x1f\x7f\u2028" | tojson
{1: "a", 2.5: "b", true: "c", none: "d"} | tojson, {"a": 1, "a": 2}, {1: "a", 1.0: "b", true: "c"}
mixed, dict, nested, [1.0, 2.5e-8, 1e100, "it's", 'say "hi"', "both ' and \""], ("a",), {"k": none, 2: true}
"\n\t\\\"'\x41\u00e9\U0001F600\101", 'single', "a" "b" 'c', "caf\xe9", "\q"
"\x00\x07\x7f\xa0\u200b" | list, ["tab\t", "nl\n", "é", "\u00ad"]
range(5) | list, range(2, 8, 3) | list, range(5, 0, -2) | list, range(0) | list, dict(a=1, b="x"), dict([("k", 2)]), dict({"q": 1}, r=2)
(1, 2) == (1, 2), [1] == (1,), {"a": 1} == {"a": 1.0}, "x" ~ undefined_name ~ "y", [undefined_name] | length
n if n is number and n > 5 else "small", (n is odd) and (f is float), not n is even, n is not even
text|upper|lower|title, (text|length) + 1, -n|abs, text.split(", ")[1][0], text.split(", ")|last|upper, "%s" | length
people[0].name, people[0]["name"], people | length > 2, people[-1].tags is defined and people[-1].tags, (people | first).name
"a" in "abc" and "b" not in "xyz", [1, 2, 3] | select("in", [2, 3]) | list, "x" is in "xyz", n in [7, 8] is true
text.foo is defined, n.real is defined is defined, dict.x.y is defined, list.foo is defined, none.foo is defined
3.0, 3 | float, 10 | float | int, 7.0 // 2, 7 // 2.0, 2 ** 0.5, 1 / 3, 10 / 5, 1e22, 1.5e300 * 2, 5e-324, 1.7976931348623157e308
""".strip().split("\n")

# Whole small templates.
SNIPPETS = [
    "{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in list %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}"
    "{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in dict %}{{ k }}{% endfor %}",
    "{% for c in uni %}{{ c }}.{% endfor %}", "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}{{ x }}{{ loop.length }}{% else %}none{% endfor %}",
    "{% for x in undefined_name %}x{% else %}none{% endfor %}", "{% for x in list if x > 9 %}x{% else %}none{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% if x == 2 %}{% break %}{% endif %}{% endfor %}",
    "{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for n in tree recursive %}{{ loop.depth }}{{ n.v }}{% if n.kids %}({{ loop(n.kids) }}){% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in list %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set ns = namespace(found=false, n=0) %}{% for i in list %}{% set ns.n = ns.n + i %}{% set ns.found = true %}{% endfor %}"
    "{{ ns.n }}{{ ns.found }}{{ ns.missing is defined }}",
    "{% set ns = namespace() %}{% set ns.x = [1] %}{{ ns.x }}", "{% set x %}block {{ n }}{% endset %}{{ x | upper }}",
    "{% set x | upper | replace('L', '_') %}block {{ n }} l{% endset %}{{ x }}", "{% set x = 1, 2 %}{{ x }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=5) }}{{ m(b=1, a=0) }}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% macro outer() %}{{ g }}{% endmacro %}{% set g = 5 %}{{ outer() }}", "{% macro m(x) %}{% set x = 9 %}{{ x }}{% endmacro %}{{ m(1) }}{{ x }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in {{ n }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a + b }}{% endcall %}",
    "{% filter upper %}abc {{ text }}{% endfilter %}", "{% filter trim | replace('a', 'b') %}  aaa  {% endfilter %}|",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% raw %}{{ not }} {% run %}{# at all #}{% endraw %}",
    "{%- raw -%}  {{ x }}  {%- endraw -%}  y", "a {# comment #} b {#- strip -#} c", "{# multi\nline #}\nx",
    "{% generation %}in{% endgeneration %}out", "{% if a %}1{% elif n > 5 %}2{% elif yes %}3{% else %}4{% endif %}",
    "{% if nothing is none %}none{% endif %}{% if undefined_name %}x{% else %}y{% endif %}",
    "{{ raise_exception('stop') }}", "{{ undefined_name.attr }}", "{{ undefined_name + 1 }}", "{{ nested.missing.deeper }}", "{{ 1 / 0 }}",
    "{{ 'a' + 1 }}", "{{ [] + {} }}", "{{ none + 1 }}", "{{ undefined_name() }}", "{{ text.nope() }}", "{{ [1, 'a'] | sort }}",
    "{{ 1 < 'a' }}", "{{ x | nofilter }}", "{{ x is notest }}", "{{ list.append(1) }}", "{{ dict.update({}) }}", "{{ dict.pop('x') }}",
    "{{ undefined_name | tojson }}", "{{ 5 in 5 }}", "{{ ''.join([1]) }}", "{{ n() }}", "{{ 'x'[1:2:0] }}", "{{ range(1000000) }}",
    "{% for x in 5 %}{% endfor %}", "{% set text.x = 1 %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    # Syntax errors.
    "{{", "{{ }}", "{% if %}", "{% if yes %}", "{% endif %}", "{{ 1 + }}", "{{ (1 }}", "{{ 'x }}", "{% for x list %}{% endfor %}", "{{ a b }}",
    "{% unknown %}", "{# open", "{% raw %}x", "{{ [1, }}", "{{ {1} }}", "{{ 1 ! 2 }}", "{% set = 1 %}", "{% macro %}{% endmacro %}", "{{ x | }}",
    "{{ x is }}", "{{ a.(b) }}", "{% break %}", "{% for x in list %}{% endif %}", "{{ not }}", "{{ a[ }}", "{{ f(a=1, 2) }}", "{% else %}",
    # White space.
    "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}\n  b\n  {% endif %}\n  c\n", "a\n  {%- if yes -%}\n  b\n  {%- endif -%}\n  c\n",
    "a\n  {%+ if yes +%}\n  b\n  {%+ endif +%}\n  c\n", "a  {{- n -}}  b", "a \n {{ n }} \n b", "\n\n{{ n }}\n\n", "x\n", "x\n\n", "\n", "",
    "  {% if yes %}x{% endif %}  {% if yes %}y{% endif %}\n", "{% if yes %}  {% if yes %}\n  x{% endif %}{% endif %}\n\n\ny", "\t{# c #}\t\nx",
    "a\r\n{% if yes %}\r\nb\r\n{% endif %}\r\nc\r\n", "a\r{{ n }}\rb\r", "{% for x in list %}\n  {{ x }}\n{% endfor %}\n", "  {#- c -#}  \n  x",
    "{% for x in list -%}\n  {{ x }}\n{%- endfor %}\n", "{{ n }}\n{{ n }}", "{{ n -}}\n\n{{- n }}", "a {% raw %}\n b {% endraw %}\n c",
    "  {% raw %}\n  x\n  {% endraw %}\n  y", "{% set x = 1 %}\n\n{% set y = 2 %}\n{{ x }}{{ y }}", "x {%- if yes %} y {%- endif %} z", "\u00a0{%- if yes %}x{% endif %}",
    "{{ '{{' }}{{ '}}' }}{{ '{%' }}{{ {'a': {'b': 1}} }}", "{ {n} } {n} {{n}}{{{'a': 1}.a}}", "{{ n }}}", "{ % if %}", "{{-n-}}", "{{ n}}  {#-#}  x",
    "{%if yes%}x{%endif%}", "{%-if yes-%}x{%-endif-%}", "{% if yes %}\n\n x{% endif %}", "{{ n }}\n  {% if yes %}x{% endif %}",
]

def top_level_parts(line):
    """The expressions between the commas that are outside of brackets and strings."""
    parts, depth, quote, begin = [], 0, "", 0
    for i, char in enumerate(line):
        if quote:
            if char == quote and line[i - 1] != "\\":
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(line[begin:i].strip())
            begin = i + 1
    return parts + [line[begin:].strip()]


# Where @huggingface/jinja answers unlike jinja2, which is what transformers runs, and so unlike us: by template, the
# numbers of conversations. It takes lists, null and missing members as text where Python refuses or writes None
# (10, 19 to 22, 28, 32), goes on from [][0] (11), writes 1.0 as 1 (13, 14), compares objects by identity, lacks methods
# such as isdigit and filters such as map("trim"), and refuses string, items and "in" for some kinds of values.
JAVASCRIPT_DIFFERS = {
    "chatml_strict": {32},
    "command_rag": {11, 13, 14, 15, 20, 21, 22, 24},
    "deepseek_tools": {10, 13, 14, 19, 20, 21, 22, 32},
    "gemma2": {10, 11, 19, 21, 22},
    "gemma3": {11},
    "glm_xml": {13, 14, 28},
    "granite": {7, 10, 11, 19, 20, 21, 22, 28, 32},
    "harmony": {10, 11, 13, 14, 15, 19, 20, 21, 22, 24},
    "hermes_signatures": {10, 13, 14, 15, 19, 20, 21, 22, 24, 32},
    "kimi_names": {13, 14},
    "llama3": {7, 10, 19, 20, 21, 22, 28, 32},
    "llama31_tools": {10, 19, 20, 21, 22, 28},
    "llama4_parts": {11, 13, 14, 20},
    "magistral_think": {11, 13, 14, 32},
    "minimax_blocks": {13, 14, 32},
    "mistral_images": {11},
    "mistral_tools": {6, 10, 11, 13, 14, 19, 21, 22, 32},
    "nemotron_budget": {11, 13, 14, 16, 17, 32},
    "olmo": {10, 19, 20, 21, 22},
    "phi": {10, 19, 20, 21, 22},
    "pythonic_calls": {13, 14, 32},
    "qwen25": {10, 11, 13, 14, 19, 20, 21, 22, 32},
    "qwen3": {11, 13, 14, 20},
    "qwen3_coder_xml": {6, 8, 10, 11, 13, 14, 19, 20, 21, 22, 32},
    "smollm_modes": {5, 6, 8, 10, 11, 13, 14, 15, 19, 24, 29},
    "vision_counters": {32},
    "zephyr": {10, 19, 20, 21, 22},
}


def javascript_can(name, index):
    """macros.jinja has filters that it lacks throughout."""
    return name != "macros" and index not in JAVASCRIPT_DIFFERS.get(name, ())


def cases():
    """[{"template", "variables": JSON text, "javascript": whether @huggingface/jinja is asked too}]"""
    out = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        for index, conversation in enumerate(CONVERSATIONS):
            # A template that asks for the date would differ around midnight.
            variables = {"bos_token": "<s>", "eos_token": "</s>", "date_string": "3 Mar 2025", **conversation}
            out.append((path.read_text(), variables, javascript_can(path.stem, index)))
    expressions = [part for line in EXPRESSIONS for part in top_level_parts(line)]
    expressions += [part.strip() for part in template_features.EXPRESSIONS.replace("\n", "@@").split("@@")]
    for expression in expressions:
        out.append(("{{ " + expression + " }}", VALUES, False))
    for snippet in SNIPPETS + template_features.SNIPPETS:
        out.append((snippet, VALUES, False))
    return [{"template": template, "variables": json.dumps(variables), "javascript": bool(javascript)}
            for template, variables, javascript in out]
