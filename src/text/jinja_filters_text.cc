// Filters that return text, and the few for any value.
#include <algorithm>

#include "text/jinja_filters.h"
#include "text/jinja_json.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

// str() of the input, the first step of most text filters.
std::string text_of(Runtime& rt, const Value& input) {
  rt.charge(input.weight());
  return to_str(input);
}

Value tojson(Runtime& rt, const Value& input, const Arguments& arguments) {
  // The parameter order of transformers' own filter.
  const Args args = bind(rt, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(args[0], false);
  style.sort_keys = flag(args[3], false);
  if (args[1] && !args[1]->is(Kind::none)) {
    style.item_separator = ",";
    if (args[1]->is(Kind::string)) {
      style.indent = args[1]->as_string();
    } else {
      const int64_t width = std::clamp<int64_t>(want_int(rt, *args[1], "indent"), 0, 1000);
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (args[2] && !args[2]->is(Kind::none)) {
    if (!args[2]->is_sequence() || args[2]->as_items().size() != 2)
      rt.fail("separators must be a pair of str");
    style.item_separator = want_string(rt, args[2]->as_items()[0], "a separator");
    style.key_separator = want_string(rt, args[2]->as_items()[1], "a separator");
  }
  return rt.string(to_json(rt, input, style));
}

Value trim(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "trim", arguments, {"chars"});
  const std::string text = text_of(rt, input);
  if (args[0] && !args[0]->is(Kind::none))
    rt.charge(text.size() / 8 * want_string(rt, *args[0], "chars").size());
  return rt.string(strip(text, args[0], true, true));
}

Value length_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "length", arguments, {});
  return Value::integer(length(rt, input));
}

Value join(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "join", arguments, {"d", "attribute"});
  const std::string separator = args[0] ? text_of(rt, *args[0]) : std::string();
  std::string out;
  bool first = true;
  for (const Value& item : rt.iterate(input)) {
    if (!first) out += separator;
    first = false;
    out +=
        text_of(rt, args[1] && !args[1]->is(Kind::none) ? attribute_path(rt, item, *args[1], nullptr) : item);
    if (out.size() > rt.limits().output_bytes) rt.fail("the joined text is too large");
  }
  return rt.string(std::move(out));
}

Value default_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "default", arguments, {"default_value", "boolean"});
  const bool use = input.is(Kind::undefined) || (flag(args[1], false) && !truthy(input));
  return use ? (args[0] ? *args[0] : rt.string("")) : input;
}

Value upper(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "upper", arguments, {});
  return rt.string(to_upper(text_of(rt, input)));
}
Value lower(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "lower", arguments, {});
  return rt.string(to_lower(text_of(rt, input)));
}
Value capitalize(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "capitalize", arguments, {});
  return rt.string(to_capitalized(text_of(rt, input)));
}

// jinja2's title capitalises only after white space, "-" and opening brackets, unlike str.title.
Value title(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "title", arguments, {});
  const std::string text = text_of(rt, input);
  std::string out;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(std::string_view(text).substr(pos));
    const bool breaks =
        is_white_space(c.code_point) || (c.code_point >= 0x1C && c.code_point <= 0x1F) ||
        (c.code_point < 0x80 && std::string_view("-({[<").find(text[pos]) != std::string_view::npos);
    const size_t next = pos + c.length;
    if (breaks) {
      out += to_capitalized(std::string_view(text).substr(begin, pos - begin));
      out.append(text, pos, c.length);
      begin = next;
    }
    pos = next;
  }
  return rt.string(out + to_capitalized(std::string_view(text).substr(begin)));
}

Value replace(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "replace", arguments, {"old", "new", "count"});
  if (!args[0] || !args[1]) rt.fail("replace needs two arguments");
  const int64_t count = args[2] && !args[2]->is(Kind::none) ? want_int(rt, *args[2], "count") : -1;
  return rt.string(replace_all(rt, text_of(rt, input), text_of(rt, *args[0]), text_of(rt, *args[1]), count));
}

Value string_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "string", arguments, {});
  return rt.string(text_of(rt, input));
}

Value escape(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "escape", arguments, {});
  std::string out;
  for (const char c : text_of(rt, input)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return rt.string(std::move(out));
}

Value indent(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "indent", arguments, {"width", "first", "blank"});
  std::string margin(4, ' ');
  if (args[0] && args[0]->is(Kind::string)) {
    margin = args[0]->as_string();
  } else if (args[0]) {
    margin.assign(static_cast<size_t>(std::clamp<int64_t>(want_int(rt, *args[0], "width"), 0, 10'000)), ' ');
  }
  const bool blank = flag(args[2], false);
  std::string out = flag(args[1], false) ? margin : "";
  if (input.is_number() || input.is(Kind::none)) rt.fail("indent needs a str; put | string before it");
  const std::vector<std::string> lines = split_lines(text_of(rt, input) + "\n");
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += margin;
    out += lines[i];
    if (out.size() > rt.limits().output_bytes) rt.fail("the indented text is too large");
  }
  return rt.string(std::move(out));
}

Value attr(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "attr", arguments, {"name"});
  if (!args[0]) rt.fail("attr needs a name");
  const std::string& name = want_string(rt, *args[0], "name");
  // Unlike a dot, the filter does not look up items of dicts.
  if (input.is(Kind::dict) && !is_method(input, name))
    return Value::undefined("'dict object' has no attribute '" + name + "'");
  return get_attribute(rt, input, name);
}

Value center(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "center", arguments, {"width"});
  return call_method(rt, rt.string(text_of(rt, input)), "center",
                     {{args[0] ? *args[0] : Value::integer(80)}, {}});
}

// The arguments are values of "%" or names of "%(name)s", not both.
Value format(Runtime& rt, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    rt.fail("format takes positional or named arguments, not both");
  Dict named;
  for (const auto& [name, value] : arguments.named)
    named.set(rt.string(name), value);
  const Value values = arguments.named.empty() ? rt.tuple(arguments.positional) : rt.dict(std::move(named));
  return rt.string(format_percent(rt, text_of(rt, input), values));
}

Value wordcount(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "wordcount", arguments, {});
  int64_t count = 0;
  bool inside = false;
  const std::string text = text_of(rt, input);
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(decode_utf8(rest).length)) {
    const bool word = is_word(decode_utf8(rest).code_point);
    count += word && !inside;
    inside = word;
  }
  return Value::integer(count);
}

std::string first_characters(std::string_view text, int64_t count) {
  size_t end = 0;
  for (int64_t i = 0; i < count && end < text.size(); ++i)
    end += decode_utf8(text.substr(end)).length;
  return std::string(text.substr(0, end));
}

Value truncate(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = args[0] ? want_int(rt, *args[0], "length") : 255;
  const std::string end = args[2] ? want_string(rt, *args[2], "end") : "...";
  const int64_t leeway = args[3] && !args[3]->is(Kind::none) ? want_int(rt, *args[3], "leeway") : 5;
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0)
    rt.fail("truncate: length must be at least that of the end, and leeway at least 0");
  const std::string text = text_of(rt, input);
  if (static_cast<int64_t>(count_code_points(text)) - leeway <= length) return rt.string(text);
  std::string kept = first_characters(text, length - end_length);
  if (!flag(args[1], false)) kept = kept.substr(0, kept.rfind(' '));
  return rt.string(kept + end);
}

void append_quoted_for_url(std::string_view text, bool for_query, std::string& out) {
  constexpr char kHex[] = "0123456789ABCDEF";
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (kPlain.find(c) != std::string_view::npos || (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out.append(1, '%').append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    }
  }
}

Value urlencode(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "urlencode", arguments, {});
  std::string out;
  if (!input.is(Kind::dict) && !input.is_sequence()) {
    append_quoted_for_url(text_of(rt, input), false, out);
    return rt.string(std::move(out));
  }
  const Value pairs = input.is(Kind::dict) ? call_method(rt, input, "items", {}) : input;
  for (const Value& pair : rt.iterate(pairs)) {
    const std::vector<Value> parts = rt.iterate(pair);
    if (parts.size() != 2) rt.fail("urlencode needs a text, a dict or pairs");
    if (!out.empty()) out += '&';
    append_quoted_for_url(text_of(rt, parts[0]), true, out);
    out += '=';
    append_quoted_for_url(text_of(rt, parts[1]), true, out);
  }
  return rt.string(std::move(out));
}

Value safe(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "safe", arguments, {});  // nothing is escaped automatically, so no mark is needed
  return rt.string(text_of(rt, input));
}

}  // namespace

void add_text_filters(FilterTable& table) {
  table.insert({
      {"attr", attr},
      {"capitalize", capitalize},
      {"center", center},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"e", escape},
      {"escape", escape},
      {"forceescape", escape},
      {"format", format},
      {"indent", indent},
      {"join", join},
      {"length", length_filter},
      {"lower", lower},
      {"replace", replace},
      {"safe", safe},
      {"string", string_filter},
      {"title", title},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", upper},
      {"urlencode", urlencode},
      {"wordcount", wordcount},
  });
}

}  // namespace fovea::text::jinja
