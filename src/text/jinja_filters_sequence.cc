// Filters over the items of lists, dicts and generators. As in jinja2, most of them return generators.
#include <algorithm>
#include <iterator>
#include <list>
#include <utility>

#include "text/jinja_filters.h"
#include "text/unicode.h"

namespace fovea::text::jinja {
namespace {

// Sort or comparison key: the attribute if given, in lower case unless `case_sensitive`.
Value sort_key(Runtime& rt, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute && !attribute->is(Kind::none) ? attribute_path(rt, item, *attribute, nullptr) : item;
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
  // std::list::sort is a stable merge sort that tolerates an inconsistent order (NaN) and exceptions;
  // Python's reverse keeps equal items in their order too.
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

// "a,b" sorts by a, then by b where a is equal.
std::vector<Keyed> with_many_keys(Runtime& rt, const Value& input, const std::string& attributes,
                                  bool case_sensitive) {
  std::vector<Value> paths;
  for (size_t begin = 0; begin <= attributes.size();) {
    const size_t end = std::min(attributes.find(',', begin), attributes.size());
    paths.push_back(rt.string(attributes.substr(begin, end - begin)));
    begin = end + 1;
  }
  std::vector<Keyed> out;
  for (Value& item : rt.iterate(input)) {
    std::vector<Value> keys;
    for (const Value& path : paths)
      keys.push_back(sort_key(rt, item, &path, case_sensitive));
    out.push_back({rt.list(std::move(keys)), std::move(item)});
  }
  return out;
}

Value sort(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool many =
      args[2] && args[2]->is(Kind::string) && args[2]->as_string().find(',') != std::string::npos;
  const bool case_sensitive = flag(args[1], false);
  std::vector<Keyed> keyed = many ? with_many_keys(rt, input, args[2]->as_string(), case_sensitive)
                                  : with_keys(rt, input, args[2], case_sensitive);
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
  return rt.generator(std::move(items));
}

Value groupby(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "groupby", arguments, {"attribute", "default", "case_sensitive"});
  if (!args[0]) rt.fail("groupby needs an attribute");
  const bool case_sensitive = flag(args[2], false);
  std::vector<Keyed> keyed;
  for (Value& item : rt.iterate(input)) {
    rt.step();
    Value key = attribute_path(rt, item, *args[0], args[1]);
    if (key.is(Kind::undefined)) rt.fail(key.undefined_message());
    if (!case_sensitive && key.is(Kind::string)) key = rt.string(to_lower(key.as_string()));
    keyed.push_back({std::move(key), std::move(item)});
  }
  sort_keyed(rt, keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < keyed.size() && equal(keyed[end].key, keyed[begin].key); ++end) {
      rt.charge(keyed[begin].key.weight());
      members.push_back(keyed[end].item);
    }
    Value name = case_sensitive ? keyed[begin].key : attribute_path(rt, members.front(), *args[0], args[1]);
    groups.push_back(Value::group(std::move(name), rt.list(std::move(members))));
    begin = end;
  }
  return rt.list(std::move(groups));
}

int64_t want_count(Runtime& rt, const Value* count, std::string_view what) {
  const int64_t value = count ? want_int(rt, *count, what) : 0;
  if (value < 1) rt.fail(std::string(what) + " must be at least 1");
  return value;
}

// Rows of `count` items, the last one padded if a fill value is given.
Value batch(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "batch", arguments, {"linecount", "fill_with"});
  const auto count = static_cast<size_t>(want_count(rt, args[0], "batch: linecount"));
  std::vector<Value> rows, row;
  for (Value& item : rt.iterate(input)) {
    if (row.size() == count) rows.push_back(rt.list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  const bool fill = args[1] && !args[1]->is(Kind::none);
  while (fill && !row.empty() && row.size() < count) {
    rt.charge(16 + args[1]->weight());
    row.push_back(*args[1]);
  }
  if (!row.empty()) rows.push_back(rt.list(std::move(row)));
  return rt.generator(std::move(rows));
}

// `count` columns; the first ones have one item more where the size is not divisible.
Value slice(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "slice", arguments, {"slices", "fill_with"});
  const int64_t wanted = want_count(rt, args[0], "slice: slices");
  if (wanted > 100'000) rt.fail("slice: slices must be at most 100000");
  const auto count = static_cast<size_t>(wanted);
  const std::vector<Value> items = rt.iterate(input);
  const size_t longer = items.size() % count;
  const bool fill = args[1] && !args[1]->is(Kind::none);
  std::vector<Value> columns;
  for (size_t i = 0, begin = 0; i < count; ++i) {
    const size_t end = begin + items.size() / count + (i < longer);
    std::vector<Value> column(items.begin() + static_cast<std::ptrdiff_t>(begin),
                              items.begin() + static_cast<std::ptrdiff_t>(end));
    if (fill && i >= longer) column.push_back(*args[1]);
    columns.push_back(rt.list(std::move(column)));
    begin = end;
  }
  return rt.generator(std::move(columns));
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
    total = binary(rt, "+", total, by_attribute ? attribute_path(rt, item, *args[0], nullptr) : item);
  }
  return total;
}

// select, reject, selectattr, rejectattr: the items for which the test (of the attribute) gives `wanted`.
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
    const Value subject = by_attribute ? attribute_path(rt, item, attribute, nullptr) : item;
    const bool holds = test.empty() ? truthy(subject) : apply_test(rt, test, subject, rest);
    if (holds == wanted) items.push_back(std::move(item));
  }
  return rt.generator(std::move(items));
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
      items.push_back(attribute_path(rt, item, *args[0], args[1]));
    }
    return rt.generator(std::move(items));
  }
  Arguments rest = arguments;
  const std::string name = want_string(rt, rest.positional.front(), "the name of a filter");
  rest.positional.erase(rest.positional.begin());
  // Nested maps would nest calls as deeply as the argument list is long.
  if (name == "map") rt.fail("map can't be mapped; write a loop");
  for (const Value& item : rt.iterate(input)) {
    rt.step();
    items.push_back(apply_filter(rt, name, item, rest));
  }
  return rt.generator(std::move(items));
}

Value list_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "list", arguments, {});
  return rt.list(rt.iterate(input));
}

Value first(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "first", arguments, {});
  if (input.is(Kind::generator)) {
    Progress& rest = input.as_progress();
    if (rest.next < rest.sequence.items.size()) return rest.sequence.items[rest.next++];
  }
  std::vector<Value> items = rt.iterate(input);
  return items.empty() ? Value::undefined("no first item, the sequence was empty") : std::move(items.front());
}

Value last(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "last", arguments, {});
  if (input.is(Kind::generator)) rt.fail("a generator has no last item; put | list before it");
  std::vector<Value> items = rt.iterate(input);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : std::move(items.back());
}

Value reverse(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "reverse", arguments, {});
  std::vector<Value> items = rt.iterate(input);
  std::reverse(items.begin(), items.end());
  if (input.is(Kind::generator)) return rt.list(std::move(items));
  if (!input.is(Kind::string)) return rt.generator(std::move(items));
  std::string out;
  for (const Value& item : items)
    out += item.as_string();
  return rt.string(std::move(out));
}

Value items_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "items", arguments, {});
  if (input.is(Kind::undefined)) return rt.generator({});
  if (!input.is(Kind::dict)) rt.fail(std::string("items needs a dict, not ") + std::string(type_name(input)));
  return rt.generator(call_method(rt, input, "items", {}).as_items());
}

}  // namespace

void add_sequence_filters(FilterTable& table) {
  table.insert({
      {"batch", batch},        {"dictsort", dictsort}, {"first", first},           {"groupby", groupby},
      {"items", items_filter}, {"last", last},         {"list", list_filter},      {"map", map},
      {"max", max_filter},     {"min", min_filter},    {"reject", reject},         {"rejectattr", rejectattr},
      {"reverse", reverse},    {"select", select},     {"selectattr", selectattr}, {"slice", slice},
      {"sort", sort},          {"sum", sum},           {"unique", unique},
  });
}

}  // namespace fovea::text::jinja
