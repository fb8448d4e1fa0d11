// Functions that every template can call.
#include <algorithm>
#include <array>
#include <ctime>

#include "text/jinja_runtime.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

constexpr std::array<std::string_view, 7> kGlobals = {"range",  "namespace",       "dict",        "cycler",
                                                      "joiner", "raise_exception", "strftime_now"};

constexpr int64_t kMaxRange = 100'000;  // as in jinja2's sandbox

Value range(Runtime& rt, const Arguments& arguments) {
  const auto args = bind(rt, "range", arguments, {"start", "stop", "step"});
  if (!args[0]) rt.fail("range needs an argument");
  const int64_t first = want_int(rt, *args[0], "a bound of range");
  const int64_t start = args[1] ? first : 0;
  const int64_t stop = args[1] ? want_int(rt, *args[1], "a bound of range") : first;
  const int64_t step = args[2] ? want_int(rt, *args[2], "the step of range") : 1;
  if (step == 0) rt.fail("the step of range must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      rt.fail(std::string("range has more than ") + std::to_string(kMaxRange) + " elements");
    }
    items.push_back(Value::integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return rt.list(std::move(items));
}

void add_pairs(Runtime& rt, const Value& source, Dict& out) {
  if (source.is(Kind::dict)) {
    for (const auto& [key, value] : source.as_dict().items())
      out.set(key, value);
    return;
  }
  for (const Value& pair : rt.iterate(source)) {
    if (!pair.is_sequence() || pair.as_items().size() != 2) rt.fail("dict needs pairs of key and value");
    out.set(pair.as_items()[0], pair.as_items()[1]);
  }
}

Dict to_dict(Runtime& rt, std::string_view what, const Arguments& arguments) {
  if (arguments.positional.size() > 1) rt.fail(std::string(what) + " takes at most one positional argument");
  Dict dict;
  if (!arguments.positional.empty()) {
    rt.charge(arguments.positional[0].weight());
    add_pairs(rt, arguments.positional[0], dict);
  }
  for (const auto& [name, value] : arguments.named)
    dict.set(Value::string(name), value);
  return dict;
}

Value make_namespace(Runtime& rt, const Arguments& arguments) {
  const Dict members = to_dict(rt, "namespace", arguments);
  Value space = rt.new_namespace();
  for (const auto& [key, value] : members.items()) {
    space.as_namespace().members.emplace_back(want_string(rt, key, "a member of namespace"), value);
  }
  return space;
}

Value cycler(Runtime& rt, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty())
    rt.fail("cycler needs positional arguments, at least one");
  rt.charge(arguments.positional.size() * 16);
  return Value::progress(Kind::cycler, arguments.positional);
}

Value joiner(Runtime& rt, const Arguments& arguments) {
  const auto args = bind(rt, "joiner", arguments, {"sep"});
  return Value::progress(Kind::joiner, {args[0] ? *args[0] : rt.string(", ")});
}

Value strftime_now(Runtime& rt, const Arguments& arguments) {
  const auto args = bind(rt, "strftime_now", arguments, {"format"});
  if (!args[0]) rt.fail("strftime_now needs a format");
  const std::string& format = want_string(rt, *args[0], "the format");
  if (format.size() > 200) rt.fail("the format of strftime_now is longer than 200 bytes");
  // Widths ("%99999d") would let a short format produce any amount of text.
  for (size_t at = 0; (at = format.find('%', at)) != std::string::npos; at += 2) {
    const char c = at + 1 < format.size() ? format[at + 1] : '\0';
    if (c == '-') ++at;
    const char conversion = at + 1 < format.size() ? format[at + 1] : '\0';
    if (conversion == '\0' ||
        std::string_view("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%").find(conversion) ==
            std::string_view::npos) {
      rt.fail("strftime_now: unknown conversion in the format");
    }
  }
  if (format.empty()) return rt.string("");
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  char text[4096];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), &local);
  return rt.string(to_valid_utf8(std::string_view(text, size)));
}

}  // namespace

bool is_global(std::string_view name) {
  return std::find(kGlobals.begin(), kGlobals.end(), name) != kGlobals.end();
}

Value call_global(Runtime& rt, std::string_view name, const Arguments& arguments) {
  if (name == "range") return range(rt, arguments);
  if (name == "namespace") return make_namespace(rt, arguments);
  if (name == "dict") return rt.dict(to_dict(rt, "dict", arguments));
  if (name == "cycler") return cycler(rt, arguments);
  if (name == "joiner") return joiner(rt, arguments);
  if (name == "strftime_now") return strftime_now(rt, arguments);
  const auto args = bind(rt, "raise_exception", arguments, {"message"});
  rt.fail("the template raised an exception: " + (args[0] ? to_str(*args[0]) : std::string()));
}

// Returns the separator, except on the first call.
Value call_joiner(Runtime& rt, const Value& joiner, const Arguments& arguments) {
  bind(rt, "joiner", arguments, {});
  Progress& state = joiner.as_progress();
  return state.next++ == 0 ? rt.string("") : state.sequence.items[0];
}

}  // namespace fovea::text::jinja
