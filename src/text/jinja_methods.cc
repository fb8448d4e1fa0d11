// Methods of str, dict, list and tuple that change nothing.
#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>

#include "text/jinja_characters.h"
#include "text/jinja_runtime.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

constexpr std::array<std::string_view, 44> kStringMethods = {
    "strip",       "lstrip",     "rstrip",    "split",        "rsplit",       "splitlines",   "startswith",
    "endswith",    "replace",    "upper",     "lower",        "title",        "capitalize",   "join",
    "find",        "rfind",      "count",     "index",        "isdigit",      "isalpha",      "isalnum",
    "isspace",     "isupper",    "islower",   "removeprefix", "removesuffix", "partition",    "rpartition",
    "zfill",       "ljust",      "rjust",     "center",       "casefold",     "swapcase",     "rindex",
    "format",      "format_map", "isnumeric", "isdecimal",    "istitle",      "isidentifier", "isascii",
    "isprintable", "expandtabs"};
constexpr std::array<std::string_view, 5> kDictMethods = {"items", "keys", "values", "get", "copy"};
constexpr std::array<std::string_view, 3> kListMethods = {"index", "count", "copy"};
constexpr std::array<std::string_view, 2> kCyclerMethods = {"next", "reset"};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> kListMutators = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};

template <size_t n>
bool has(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_python_space_at(std::string_view text, size_t pos, size_t& length) {
  const Utf8Char c = decode_utf8(text.substr(pos));
  length = c.length;
  return is_python_space(c.code_point);
}

size_t find_bytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

std::vector<std::string_view> split_at_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts;
  size_t pos = 0, length = 0;
  while (true) {
    while (pos < text.size() && is_python_space_at(text, pos, length))
      pos += length;
    if (pos == text.size()) return parts;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(text.substr(pos));
      return parts;
    }
    const size_t begin = pos;
    while (pos < text.size() && !is_python_space_at(text, pos, length))
      pos += length;
    parts.push_back(text.substr(begin, pos - begin));
  }
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts;
  size_t pos = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = find_bytes(text, separator, pos);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(pos, at - pos));
    pos = at + separator.size();
  }
  parts.push_back(text.substr(pos));
  return parts;
}

// Splits from the right; this differs from split_at only with a limit.
std::vector<std::string_view> split_right(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<std::string_view> parts = split_at(text, separator, -1);
  if (limit < 0 || static_cast<int64_t>(parts.size()) <= limit + 1) return parts;
  const auto merged = parts.size() - static_cast<size_t>(limit);
  const char* end = parts[merged - 1].data() + parts[merged - 1].size();
  std::vector<std::string_view> out{text.substr(0, static_cast<size_t>(end - text.data()))};
  out.insert(out.end(), parts.begin() + static_cast<std::ptrdiff_t>(merged), parts.end());
  return out;
}

// The text left over by the limit keeps the white space before it.
std::vector<std::string_view> split_right_at_space(std::string_view text, int64_t limit) {
  std::vector<std::string_view> parts = split_at_space(text, -1);
  if (limit < 0 || static_cast<int64_t>(parts.size()) <= limit) return parts;
  const size_t merged = parts.size() - static_cast<size_t>(limit);
  const char* end = parts[merged - 1].data() + parts[merged - 1].size();
  std::vector<std::string_view> out{text.substr(0, static_cast<size_t>(end - text.data()))};
  out.insert(out.end(), parts.begin() + static_cast<std::ptrdiff_t>(merged), parts.end());
  return out;
}

Value to_list(Runtime& rt, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts)
    items.push_back(rt.string(std::string(part)));
  return rt.list(std::move(items));
}

Value split(Runtime& rt, const std::string& text, std::string_view name, const Arguments& arguments) {
  const auto args = bind(rt, name, arguments, {"sep", "maxsplit"});
  const int64_t limit = args[1] ? want_int(rt, *args[1], "maxsplit") : -1;
  if (!args[0] || args[0]->is(Kind::none)) {
    return to_list(rt, name == "split" ? split_at_space(text, limit) : split_right_at_space(text, limit));
  }
  const std::string& separator = want_string(rt, *args[0], "the separator");
  if (separator.empty()) rt.fail("empty separator");
  return to_list(rt,
                 name == "split" ? split_at(text, separator, limit) : split_right(text, separator, limit));
}

bool affix_matches(std::string_view text, std::string_view affix, bool at_start) {
  return at_start ? text.starts_with(affix) : text.ends_with(affix);
}

// The part of a text that the start and end arguments of a method select, as Python's slices do.
struct Window {
  std::string_view text;
  int64_t first = 0;   // index of its first character
  bool exists = true;  // false when it starts behind the end of the text
};

Window window(Runtime& rt, std::string_view text, const Value* start, const Value* stop) {
  const auto given = [](const Value* value) { return value && !value->is(Kind::none); };
  if (!given(start) && !given(stop)) return {text};
  rt.charge(text.size());
  const auto size = static_cast<int64_t>(count_code_points(text));
  const auto bound = [&](const Value* value, int64_t fallback) {
    if (!given(value)) return fallback;
    const int64_t at = want_int(rt, *value, "a bound");
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t first = bound(start, 0), last = std::min(bound(stop, size), size);
  if (first > size || first > last) return {{}, first, false};
  const auto byte_of = [&](int64_t index) {
    size_t at = 0;
    for (int64_t i = 0; i < index; ++i)
      at += decode_utf8(text.substr(at)).length;
    return at;
  };
  const size_t begin = byte_of(first);
  return {text.substr(begin, byte_of(last) - begin), first, true};
}

Value has_affix(Runtime& rt, const std::string& text, const Arguments& arguments, bool at_start) {
  const auto args = bind(rt, at_start ? "startswith" : "endswith", arguments, {"prefix", "start", "end"});
  if (!args[0]) rt.fail(std::string(at_start ? "startswith" : "endswith") + " needs an argument");
  const Window part = window(rt, text, args[1], args[2]);
  const auto matches = [&](const Value& affix) {
    const std::string& wanted = want_string(rt, affix, "the affix");
    return part.exists && affix_matches(part.text, wanted, at_start);
  };
  if (!args[0]->is(Kind::tuple)) return Value::boolean(matches(*args[0]));
  for (const Value& affix : args[0]->as_items()) {
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

int64_t count_in(std::string_view text, const std::string& part) {
  if (part.empty()) return static_cast<int64_t>(count_code_points(text)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = find_bytes(text, part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

// Index in characters of the first or last occurrence, -1 when absent.
int64_t find_in(std::string_view text, const std::string& part, bool last) {
  const size_t at = last ? text.rfind(part) : find_bytes(text, part, 0);
  if (at == std::string::npos) return -1;
  return static_cast<int64_t>(count_code_points(text.substr(0, at)));
}

// find, rfind, index, rindex and count.
Value search(Runtime& rt, const std::string& text, std::string_view name, const Arguments& arguments) {
  const auto args = bind(rt, name, arguments, {"sub", "start", "end"});
  if (!args[0]) rt.fail(std::string(name) + " needs an argument");
  const std::string& part = want_string(rt, *args[0], "sub");
  const bool last = name.starts_with('r');
  if (last) rt.charge(text.size() / 8 * part.size());
  const Window where = window(rt, text, args[1], args[2]);
  if (name == "count") return Value::integer(where.exists ? count_in(where.text, part) : 0);
  const int64_t at = where.exists ? find_in(where.text, part, last) : -1;
  if (at < 0 && name.ends_with("index")) rt.fail("substring not found");
  return Value::integer(at < 0 ? -1 : at + where.first);
}

Value partition(Runtime& rt, const std::string& text, const std::string& separator, bool last) {
  if (separator.empty()) rt.fail("empty separator");
  size_t at = find_bytes(text, separator, 0);
  for (size_t next = at; last && next != std::string::npos; next = find_bytes(text, separator, next + 1))
    at = next;
  if (at == std::string::npos) {
    Value whole = rt.string(text), empty = rt.string("");
    return last ? rt.tuple({empty, empty, whole}) : rt.tuple({whole, empty, empty});
  }
  return rt.tuple(
      {rt.string(text.substr(0, at)), rt.string(separator), rt.string(text.substr(at + separator.size()))});
}

Value pad(Runtime& rt, const std::string& text, std::string_view name, const Arguments& arguments) {
  const auto args = bind(rt, name, arguments, {"width", "fillchar"});
  if (!args[0]) rt.fail(std::string(name) + " needs a width");
  const std::string fill = args[1] ? want_string(rt, *args[1], "fillchar") : name == "zfill" ? "0" : " ";
  if (count_code_points(fill) != 1) rt.fail("fillchar must be one character");
  const int64_t width = std::max<int64_t>(want_int(rt, *args[0], "width"), 0);
  const int64_t missing = width - static_cast<int64_t>(count_code_points(text));
  if (missing <= 0) return rt.string(text);
  if (static_cast<uint64_t>(missing) > rt.limits().output_bytes) rt.fail("the padded text is too large");
  int64_t left = name == "ljust" ? 0 : name == "center" ? missing / 2 : missing;
  if (name == "center" && missing % 2 == 1) {
    // As in Python, the odd blank goes left when the width is odd too.
    left = missing / 2 + (width & 1);
  }
  std::string out;
  size_t sign = name == "zfill" && (text.starts_with('-') || text.starts_with('+')) ? 1 : 0;
  out.append(text, 0, sign);
  for (int64_t i = 0; i < left; ++i)
    out += fill;
  out.append(text, sign);
  for (int64_t i = left; i < missing; ++i)
    out += fill;
  return rt.string(std::move(out));
}

Value expand_tabs(Runtime& rt, std::string_view text, int64_t size) {
  if (size > 1000) rt.fail("expandtabs: tabsize must be at most 1000");
  std::string out;
  int64_t column = 0;
  for (; !text.empty(); text.remove_prefix(decode_utf8(text).length)) {
    if (text[0] == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      out += text.substr(0, decode_utf8(text).length);
      column = text[0] == '\n' || text[0] == '\r' ? 0 : column + 1;
    }
    if (out.size() > rt.limits().output_bytes) rt.fail("the expanded text is too large");
  }
  return rt.string(std::move(out));
}

Value format_map(Runtime& rt, const std::string& text, const Value& mapping) {
  if (!mapping.is(Kind::dict)) rt.fail("format_map needs a dict");
  Arguments names;
  rt.charge(mapping.weight());
  for (const auto& [key, value] : mapping.as_dict().items()) {
    if (key.is(Kind::string)) names.named.emplace_back(key.as_string(), value);
  }
  return rt.string(format_braces(rt, text, names));
}

Value join(Runtime& rt, const std::string& separator, const Value& items) {
  std::string out;
  bool first = true;
  for (const Value& item : rt.iterate(items)) {
    if (!first) out += separator;
    first = false;
    out += want_string(rt, item, "an item of join");
    if (out.size() > rt.limits().output_bytes) rt.fail("the joined text is too large");
  }
  return rt.string(std::move(out));
}

Value string_method(Runtime& rt, const Value& object, std::string_view name, const Arguments& arguments) {
  const std::string& text = object.as_string();
  rt.charge(text.size() + 16);
  const auto one = [&](std::string_view parameter) -> const Value& {
    const auto args = bind(rt, name, arguments, {parameter});
    if (!args[0]) rt.fail(std::string(name) + " needs an argument");
    return *args[0];
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const auto args = bind(rt, name, arguments, {"chars"});
    if (args[0] && !args[0]->is(Kind::none)) {
      rt.charge(text.size() / 8 * want_string(rt, *args[0], "chars").size());
    }
    return rt.string(strip(text, args[0], name != "rstrip", name != "lstrip"));
  }
  if (name == "split" || name == "rsplit") return split(rt, text, name, arguments);
  if (name == "startswith" || name == "endswith") return has_affix(rt, text, arguments, name == "startswith");
  if (name == "replace") {
    const auto args = bind(rt, name, arguments, {"old", "new", "count"});
    if (!args[0] || !args[1]) rt.fail("replace needs two arguments");
    return rt.string(replace_all(rt, text, want_string(rt, *args[0], "old"), want_string(rt, *args[1], "new"),
                                 args[2] ? want_int(rt, *args[2], "count") : -1));
  }
  if (name == "join") return join(rt, text, one("iterable"));
  if (name == "count" || name.ends_with("find") || name.ends_with("index"))
    return search(rt, text, name, arguments);
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& affix = want_string(rt, one("affix"), "affix");
    if (!affix_matches(text, affix, name == "removeprefix")) return object;
    const size_t rest = text.size() - affix.size();
    return rt.string(name == "removeprefix" ? text.substr(affix.size()) : text.substr(0, rest));
  }
  if (name == "partition" || name == "rpartition") {
    const std::string& separator = want_string(rt, one("sep"), "sep");
    if (name == "rpartition") rt.charge(text.size() / 8 * separator.size());
    return partition(rt, text, separator, name == "rpartition");
  }
  if (name == "zfill" || name == "ljust" || name == "rjust" || name == "center") {
    return pad(rt, text, name, arguments);
  }
  if (name == "splitlines") {
    const auto args = bind(rt, name, arguments, {"keepends"});
    std::vector<Value> lines;
    for (std::string& line : split_lines(text, args[0] && truthy(*args[0])))
      lines.push_back(rt.string(std::move(line)));
    return rt.list(std::move(lines));
  }
  if (name == "format") return rt.string(format_braces(rt, text, arguments));
  if (name == "format_map") return format_map(rt, text, one("mapping"));
  if (name == "expandtabs") {
    const auto args = bind(rt, name, arguments, {"tabsize"});
    return expand_tabs(rt, text, args[0] ? want_int(rt, *args[0], "tabsize") : 8);
  }
  bind(rt, name, arguments, {});
  if (name == "upper") return rt.string(to_upper(text));
  if (name == "lower" || name == "casefold") return rt.string(to_lower(text));
  if (name == "title") return rt.string(to_title(text));
  if (name == "capitalize") return rt.string(to_capitalized(text));
  if (name == "swapcase") return rt.string(swap_case(text));
  return Value::boolean(in_class(text, name));
}

Value dict_method(Runtime& rt, const Value& object, std::string_view name, const Arguments& arguments) {
  const Dict& dict = object.as_dict();
  if (name == "get") {
    const auto args = bind(rt, name, arguments, {"key", "default"});
    if (!args[0]) rt.fail("get needs an argument");
    rt.charge(dict.size() + args[0]->weight());
    if (const Value* found = dict.find(*args[0])) return *found;
    return args[1] ? *args[1] : Value::none();
  }
  bind(rt, name, arguments, {});
  if (name == "copy") return object;
  std::vector<Value> items;
  items.reserve(dict.size());
  for (const auto& [key, value] : dict.items()) {
    items.push_back(name == "keys" ? key : name == "values" ? value : rt.tuple({key, value}));
  }
  return rt.list(std::move(items));
}

Value cycler_method(Runtime& rt, const Value& object, std::string_view name, const Arguments& arguments) {
  bind(rt, name, arguments, {});
  Progress& cycle = object.as_progress();
  const std::vector<Value>& items = cycle.sequence.items;
  const size_t at = name == "reset" ? 0 : cycle.next;
  cycle.next = name == "reset" ? 0 : (at + 1) % items.size();
  return name == "reset" ? Value::none() : items[at];
}

Value list_method(Runtime& rt, const Value& object, std::string_view name, const Arguments& arguments) {
  if (name == "copy") return object;
  const auto args = bind(rt, name, arguments, {"value"});
  if (!args[0]) rt.fail(std::string(name) + " needs an argument");
  rt.charge(object.weight());
  const auto& items = object.as_items();
  const auto same = [&](const Value& item) { return equal(item, *args[0]); };
  if (name == "count") return Value::integer(std::count_if(items.begin(), items.end(), same));
  const auto it = std::find_if(items.begin(), items.end(), same);
  if (it == items.end()) rt.fail("value is not in the list");
  return Value::integer(it - items.begin());
}

}  // namespace

bool is_method(const Value& object, std::string_view name) {
  if (object.is(Kind::string)) return has(kStringMethods, name);
  if (object.is(Kind::dict)) return has(kDictMethods, name);
  if (object.is(Kind::cycler)) return has(kCyclerMethods, name);
  return object.is_sequence() && has(kListMethods, name);
}

bool is_mutating_method(const Value& object, std::string_view name) {
  return (object.is(Kind::dict) && has(kDictMutators, name)) ||
         (object.is(Kind::list) && has(kListMutators, name));
}

Value call_method(Runtime& rt, const Value& object, std::string_view name, const Arguments& arguments) {
  if (object.is(Kind::string)) return string_method(rt, object, name, arguments);
  if (object.is(Kind::dict)) return dict_method(rt, object, name, arguments);
  if (object.is(Kind::cycler)) return cycler_method(rt, object, name, arguments);
  return list_method(rt, object, name, arguments);
}

std::string strip(std::string_view text, const Value* chars, bool left, bool right) {
  const bool any_space = !chars || chars->is(Kind::none);
  const std::string_view set = any_space ? std::string_view() : std::string_view(chars->as_string());
  // Characters are compared whole: a byte of one must not match a byte of another.
  const auto strippable = [&](std::string_view character) {
    if (any_space) return is_python_space(decode_utf8(character).code_point);
    for (std::string_view rest = set; !rest.empty();) {
      const size_t length = decode_utf8(rest).length;
      if (rest.substr(0, length) == character) return true;
      rest.remove_prefix(length);
    }
    return false;
  };
  while (left && !text.empty()) {
    const size_t length = decode_utf8(text).length;
    if (!strippable(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
      --begin;
    if (!strippable(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return std::string(text);
}

std::string replace_all(Runtime& rt, const std::string& text, const std::string& from, const std::string& to,
                        int64_t count) {
  std::string out;
  size_t pos = 0;
  const auto check = [&] {
    if (out.size() > rt.limits().output_bytes) rt.fail("the replaced text is too large");
  };
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    if (from.empty()) {
      // Before every character and at the end.
      out += to;
      check();
      if (pos == text.size()) return out;
      const size_t length = decode_utf8(std::string_view(text).substr(pos)).length;
      out.append(text, pos, length);
      pos += length;
      continue;
    }
    const size_t at = find_bytes(text, from, pos);
    if (at == std::string::npos) break;
    out.append(text, pos, at - pos).append(to);
    check();
    pos = at + from.size();
  }
  return out.append(text, pos);
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text.substr(pos));
    const bool ends = (c.code_point >= 0x0A && c.code_point <= 0x0D) ||
                      (c.code_point >= 0x1C && c.code_point <= 0x1E) || c.code_point == 0x85 ||
                      c.code_point == 0x2028 || c.code_point == 0x2029;
    const size_t at = pos;
    pos += c.length;
    if (!ends) continue;
    if (c.code_point == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.emplace_back(text.substr(begin, (keep_ends ? pos : at) - begin));
    begin = pos;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

}  // namespace fovea::text::jinja
