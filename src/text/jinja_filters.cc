// The filters of "x | filter", by name.
#include "text/jinja_filters.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace fovea::text::jinja {
namespace {

const FilterTable& filters() {
  static const FilterTable table = [] {
    FilterTable all;
    add_number_filters(all);
    add_sequence_filters(all);
    add_text_filters(all);
    return all;
  }();
  return table;
}

// jinja2's filters that are refused: chat templates need neither randomness nor HTML.
constexpr std::array<std::string_view, 6> kRefused = {"pprint", "random",   "striptags",
                                                      "urlize", "wordwrap", "xmlattr"};

}  // namespace

bool flag(const Value* value, bool fallback) {
  return value ? truthy(*value) : fallback;
}

Value attribute_path(Runtime& rt, const Value& item, const Value& path, const Value* fallback) {
  const auto get = [&](const Value& object, const Value& key) {
    Value value = get_item(rt, object, key);
    return value.is(Kind::undefined) && fallback && !fallback->is(Kind::none) ? *fallback : value;
  };
  if (path.is(Kind::integer)) return get(item, path);
  const std::string& text = want_string(rt, path, "attribute");
  rt.charge(text.size());
  Value value = item;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const bool index =
        !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    value = get(value, index ? Value::integer(std::atoi(part.c_str())) : Value::string(part));
    begin = end + 1;
  }
  return value;
}

bool is_filter(std::string_view name) {
  return filters().contains(name);
}

Value apply_filter(Runtime& rt, std::string_view name, const Value& input, const Arguments& arguments) {
  const auto it = filters().find(name);
  if (it != filters().end()) return it->second(rt, input, arguments);
  if (std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end())
    rt.fail(std::string("filter '") + std::string(name) + "' is not supported in chat templates");
  rt.fail(std::string("unknown filter '") + std::string(name) + "'");
}

}  // namespace fovea::text::jinja
