// The filters of "x | filter".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <optional>

#include "text/jinja_json.h"
#include "text/jinja_runtime.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

using Args = std::vector<const Value*>;

// str() of the input, as most text filters start.
std::string text_of(Runtime& rt, const Value& input) {
  rt.charge(input.weight());
  return to_str(input);
}

bool flag(const Value* value, bool fallback) {
  return value ? truthy(*value) : fallback;
}

// "a.b.0" of an item, as the attribute arguments of filters mean it.
Value attribute_path(Runtime& rt, const Value& item, const Value& path) {
  if (path.is(Kind::integer)) return get_item(rt, item, path);
  const std::string& text = want_string(rt, path, "attribute");
  rt.charge(text.size());
  Value value = item;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = get_item(rt, value, index ? Value::integer(std::atoi(part.c_str())) : Value::string(part));
    begin = end + 1;
  }
  return value;
}

// What to sort or compare by: an attribute if given, and without regard to case if wanted.
Value sort_key(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute && !attribute->is(Kind::none) ? attribute_path(rt, item, *attribute) : item;
  if (key.is(Kind::undefined)) rt.fail(key.undefined_message());
  return !case_sensitive && key.is(Kind::string) ? rt.string(to_lower(key.as_string())) : key;
}

struct Keyed {
  Value key, item;
};

std::vector<Keyed> with_keys(Runtime& rt, const Value& input, const Value* attribute, bool case_sensitive) {
  std::vector<Keyed> out;
  for (Value& item : rt.iterate(input)) {
    Value key = sort_key(rt, item, attribute, case_sensitive);
    out.push_back({std::move(key), std::move(item)});
  }
  return out;
}

void sort_keyed(Runtime& rt, std::vector<Keyed>& items, bool reverse) {
  // A list's merge sort stands an order that is none (NaN) and an error half way, and is stable; Python's
  // reverse keeps equal items in their order too.
  std::list<Keyed> sorted(std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
  sorted.sort([&](const Keyed& a, const Keyed& b) {
    return reverse ? less(rt, b.key, a.key) : less(rt, a.key, b.key);
  });
  items.assign(std::make_move_iterator(sorted.begin()), std::make_move_iterator(sorted.end()));
}

Value items_of(Runtime& rt, std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed)
    items.push_back(std::move(entry.item));
  return rt.list(std::move(items));
}

Value sort(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<Keyed> keyed = with_keys(rt, input, args[2], flag(args[1], false));
  sort_keyed(rt, keyed, flag(args[0], false));
  return items_of(rt, std::move(keyed));
}

Value unique(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "unique", arguments, {"case_sensitive", "attribute"});
  Dict seen;
  std::vector<Value> items;
  for (Keyed& entry : with_keys(rt, input, args[1], flag(args[0], false))) {
    if (entry.key.is(Kind::list) || entry.key.is(Kind::dict))
      rt.fail("unique: a list or dict is not hashable");
    rt.charge(16 + entry.key.weight());
    if (seen.find(entry.key)) continue;
    seen.set(entry.key, Value::none());
    items.push_back(std::move(entry.item));
  }
  return rt.list(std::move(items));
}

Value dictsort(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.is(Kind::dict))
    rt.fail(std::string("dictsort needs a dict, not ") + std::string(type_name(input)));
  const std::string by = args[1] ? want_string(rt, *args[1], "by") : "key";
  if (by != "key" && by != "value") rt.fail("dictsort: by must be 'key' or 'value'");
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.as_dict().items()) {
    Value sort_by = sort_key(rt, by == "key" ? key : value, nullptr, flag(args[0], false));
    keyed.push_back({std::move(sort_by), rt.tuple({key, value})});
  }
  sort_keyed(rt, keyed, flag(args[2], false));
  return items_of(rt, std::move(keyed));
}

Value extreme(Runtime& rt, const Value& input, const Arguments& arguments, bool want_max) {
  const Args args = bind(rt, want_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  std::vector<Keyed> keyed = with_keys(rt, input, args[1], flag(args[0], false));
  if (keyed.empty()) return Value::undefined("no item in an empty sequence");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    const bool better =
        want_max ? less(rt, keyed[best].key, keyed[i].key) : less(rt, keyed[i].key, keyed[best].key);
    if (better) best = i;
  }
  return keyed[best].item;
}

Value min_filter(Runtime& rt, const Value& input, const Arguments& a) {
  return extreme(rt, input, a, false);
}
Value max_filter(Runtime& rt, const Value& input, const Arguments& a) {
  return extreme(rt, input, a, true);
}

Value sum(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "sum", arguments, {"attribute", "start"});
  Value total = args[1] ? *args[1] : Value::integer(0);
  for (const Value& item : rt.iterate(input)) {
    const bool by_attribute = args[0] && !args[0]->is(Kind::none);
    total = binary(rt, "+", total, by_attribute ? attribute_path(rt, item, *args[0]) : item);
  }
  return total;
}

// select, reject, selectattr, rejectattr: the items whose (attribute's) test gives `wanted`.
Value select_where(Runtime& rt, std::string_view name, const Value& input, const Arguments& arguments,
                   bool by_attribute, bool wanted) {
  if (!arguments.named.empty()) rt.fail(std::string(name) + " takes no named arguments");
  std::vector<Value> rest = arguments.positional;
  Value attribute;
  if (by_attribute) {
    if (rest.empty()) rt.fail(std::string(name) + " needs the name of an attribute");
    attribute = rest.front();
    rest.erase(rest.begin());
  }
  std::string test;
  if (!rest.empty()) {
    test = want_string(rt, rest.front(), "the name of a test");
    rest.erase(rest.begin());
  }
  std::vector<Value> items;
  for (Value& item : rt.iterate(input)) {
    rt.step();
    const Value subject = by_attribute ? attribute_path(rt, item, attribute) : item;
    const bool holds = test.empty() ? truthy(subject) : apply_test(rt, test, subject, rest);
    if (holds == wanted) items.push_back(std::move(item));
  }
  return rt.list(std::move(items));
}

Value select(Runtime& rt, const Value& input, const Arguments& a) {
  return select_where(rt, "select", input, a, false, true);
}
Value reject(Runtime& rt, const Value& input, const Arguments& a) {
  return select_where(rt, "reject", input, a, false, false);
}
Value selectattr(Runtime& rt, const Value& input, const Arguments& a) {
  return select_where(rt, "selectattr", input, a, true, true);
}
Value rejectattr(Runtime& rt, const Value& input, const Arguments& a) {
  return select_where(rt, "rejectattr", input, a, true, false);
}

Value map(Runtime& rt, const Value& input, const Arguments& arguments) {
  std::vector<Value> items;
  if (arguments.positional.empty()) {
    const Args args = bind(rt, "map", arguments, {"attribute", "default"});
    if (!args[0]) rt.fail("map needs the name of a filter or attribute=");
    for (const Value& item : rt.iterate(input)) {
      rt.step();
      Value value = attribute_path(rt, item, *args[0]);
      if (value.is(Kind::undefined) && args[1]) value = *args[1];
      items.push_back(std::move(value));
    }
    return rt.list(std::move(items));
  }
  Arguments rest = arguments;
  const std::string name = want_string(rt, rest.positional.front(), "the name of a filter");
  rest.positional.erase(rest.positional.begin());
  if (name == "map") rt.fail("map of map is not supported");
  for (const Value& item : rt.iterate(input)) {
    rt.step();
    items.push_back(apply_filter(rt, name, item, rest));
  }
  return rt.list(std::move(items));
}

Value tojson(Runtime& rt, const Value& input, const Arguments& arguments) {
  // The order of transformers' own filter.
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
    out += text_of(rt, args[1] && !args[1]->is(Kind::none) ? attribute_path(rt, item, *args[1]) : item);
    if (out.size() > rt.limits().output_bytes) rt.fail("the joined text is too large");
  }
  return rt.string(std::move(out));
}

Value default_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "default", arguments, {"default_value", "boolean"});
  const bool use = input.is(Kind::undefined) || (flag(args[1], false) && !truthy(input));
  return use ? (args[0] ? *args[0] : rt.string("")) : input;
}

Value list_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "list", arguments, {});
  return rt.list(rt.iterate(input));
}

Value first(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "first", arguments, {});
  std::vector<Value> items = rt.iterate(input);
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : std::move(items.front());
}

Value last(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "last", arguments, {});
  std::vector<Value> items = rt.iterate(input);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : std::move(items.back());
}

Value reverse(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "reverse", arguments, {});
  std::vector<Value> items = rt.iterate(input);
  std::reverse(items.begin(), items.end());
  if (!input.is(Kind::string)) return rt.list(std::move(items));
  std::string out;
  for (const Value& item : items)
    out += item.as_string();
  return rt.string(std::move(out));
}

Value items_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "items", arguments, {});
  if (input.is(Kind::undefined)) return rt.list({});
  if (!input.is(Kind::dict)) rt.fail(std::string("items needs a dict, not ") + std::string(type_name(input)));
  return call_method(rt, input, "items", {});
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

// jinja2's title starts words behind white space, "-" and opening brackets only, unlike str.title.
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

// Python's float(text): nullopt when it isn't one.
std::optional<double> parse_real(const std::string& raw) {
  std::string text = strip(raw, nullptr, true, true);
  if (text.empty() || text.find_first_of("xX") != std::string::npos) return std::nullopt;
  if (text.find('(') != std::string::npos) return std::nullopt;  // "nan(1)" of C
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(const std::string& raw, int base) {
  const std::string text = strip(raw, nullptr, true, true);
  size_t digits = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (digits == text.size()) return std::nullopt;
  errno = 0;
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, base);
  if (errno != 0 || end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value int_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "int", arguments, {"default", "base"});
  const Value fallback = args[0] ? *args[0] : Value::integer(0);
  const int64_t base = args[1] ? want_int(rt, *args[1], "base") : 10;
  if (base != 0 && (base < 2 || base > 36)) rt.fail("int: base must be 0 or from 2 to 36");
  std::optional<int64_t> value;
  if (input.is_integral()) value = input.as_int();
  if (input.is(Kind::real)) value = truncated(input.as_real());
  if (input.is(Kind::string)) {
    rt.charge(input.weight());
    value = parse_int(input.as_string(), static_cast<int>(base));
    const std::optional<double> real = value ? std::nullopt : parse_real(input.as_string());
    if (real) value = truncated(*real);
  }
  return value ? Value::integer(*value) : fallback;
}

Value float_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "float", arguments, {"default"});
  if (input.is_number()) return Value::real(input.as_real());
  if (input.is(Kind::string)) {
    rt.charge(input.weight());
    if (const auto value = parse_real(input.as_string())) return Value::real(*value);
  }
  return args[0] ? *args[0] : Value::real(0.0);
}

Value abs_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "abs", arguments, {});
  if (input.is(Kind::real)) return Value::real(std::abs(input.as_real()));
  if (!input.is_integral()) want_int(rt, input, "the operand of abs");
  return input.as_int() < 0 ? negate(rt, input) : Value::integer(input.as_int());
}

Value round_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "round", arguments, {"precision", "method"});
  if (!input.is_number()) want_int(rt, input, "the operand of round");
  const int64_t precision = args[0] ? want_int(rt, *args[0], "precision") : 0;
  if (precision < -300 || precision > 300) rt.fail("round: precision must be from -300 to 300");
  const std::string method = args[1] ? want_string(rt, *args[1], "method") : "common";
  const double value = input.as_real();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::real(std::ceil(value * scale) / scale);
  if (method == "floor") return Value::real(std::floor(value * scale) / scale);
  if (method != "common") rt.fail("round: method must be 'common', 'ceil' or 'floor'");
  if (input.is_integral() && precision >= 0) return input;
  if (!std::isfinite(value)) return input;
  if (precision < 0) {
    const double rounded = std::nearbyint(value * scale) / scale;
    if (!input.is_integral()) return Value::real(rounded);
    const std::optional<int64_t> whole = truncated(rounded);
    if (!whole) rt.fail("round: the result does not fit in 64 bits");
    return Value::integer(*whole);
  }
  // Decimal rounding of the exact value, half to even, is what both printf and Python do.
  std::string text(
      static_cast<size_t>(std::snprintf(nullptr, 0, "%.*f", static_cast<int>(precision), value)) + 1, '\0');
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), value);
  return Value::real(std::strtod(text.c_str(), nullptr));
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
  return get_attribute(rt, input, want_string(rt, *args[0], "name"));
}

Value safe(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "safe", arguments, {});  // nothing is escaped by itself, so nothing needs the mark
  return rt.string(text_of(rt, input));
}

using Filter = Value (*)(Runtime&, const Value&, const Arguments&);

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> table = {
      {"abs", abs_filter},
      {"attr", attr},
      {"capitalize", capitalize},
      {"count", length_filter},
      {"d", default_filter},
      {"default", default_filter},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", float_filter},
      {"indent", indent},
      {"int", int_filter},
      {"items", items_filter},
      {"join", join},
      {"last", last},
      {"length", length_filter},
      {"list", list_filter},
      {"lower", lower},
      {"map", map},
      {"max", max_filter},
      {"min", min_filter},
      {"reject", reject},
      {"rejectattr", rejectattr},
      {"replace", replace},
      {"reverse", reverse},
      {"round", round_filter},
      {"safe", safe},
      {"select", select},
      {"selectattr", selectattr},
      {"sort", sort},
      {"string", string_filter},
      {"sum", sum},
      {"title", title},
      {"tojson", tojson},
      {"trim", trim},
      {"unique", unique},
      {"upper", upper},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) {
  return filters().contains(name);
}

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Arguments& arguments) {
  const auto it = filters().find(name);
  if (it == filters().end()) rt.fail(std::string("unknown filter '") + std::string(name) + "'");
  return it->second(rt, input, arguments);
}

}  // namespace fovea::text::jinja
