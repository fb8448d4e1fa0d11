#include "grammar/schema_shape.h"

#include <algorithm>
#include <array>

#include "grammar/code_points.h"
#include "grammar/json_text.h"

namespace fovea::grammar {
namespace {

constexpr size_t kMostAlternatives = 256;

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

StringShape meet(Expressions& x, const StringShape& a, const StringShape& b) {
  return {x.both(a.text, b.text), std::max(a.least, b.least), std::min(a.most, b.most)};
}

ArrayShape meet(Expressions&, const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out = a;
  append(out.items, b.items);
  append(out.contains, b.contains);
  out.least = std::max(a.least, b.least);
  out.most = std::min(a.most, b.most);
  return out;
}

ObjectShape meet(Expressions&, const ObjectShape& a, const ObjectShape& b) {
  ObjectShape out = a;
  append(out.properties, b.properties);
  for (const std::string& name : b.required)
    if (!out.requires_name(name)) out.required.push_back(name);
  append(out.names, b.names);
  out.least = std::max(a.least, b.least);
  out.most = std::min(a.most, b.most);
  return out;
}

template <class T>
bool product(Expressions& x, std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() * b.size() > kMostAlternatives) return false;
  std::vector<T> out;
  for (const T& left : a)
    for (const T& right : b) {
      T both = meet(x, left, right);
      if (both.least <= both.most) out.push_back(std::move(both));
    }
  a = std::move(out);
  return true;
}

}  // namespace

void add_to(Conjunction& all, const SchemaRef& ref) {
  const auto at = std::lower_bound(all.begin(), all.end(), ref);
  if (at == all.end() || !(*at == ref)) all.insert(at, ref);
}

void add_to(Conjunction& all, const Conjunction& others) {
  for (const SchemaRef& ref : others)
    add_to(all, ref);
}

Conjunction ArrayShape::at(size_t index) const {
  Conjunction all;
  for (const Items& each : items) {
    if (index < each.prefix.size())
      add_to(all, each.prefix[index]);
    else if (each.rest)
      add_to(all, *each.rest);
  }
  return all;
}

size_t ArrayShape::longest_prefix() const {
  size_t longest = 0;
  for (const Items& each : items)
    longest = std::max(longest, each.prefix.size());
  return longest;
}

bool ObjectShape::requires_name(const std::string& name) const {
  return std::ranges::find(required, name) != required.end();
}

Conjunction schemas_of(Expressions& x, const ObjectShape& object, const std::string& name) {
  Conjunction all;
  const Expr spelled = literal_of(x, name, Spelling::json);
  for (const ObjectShape::Properties& each : object.properties) {
    bool listed = false;
    for (const auto& [key, value] : each.named)
      if (key == name) {
        listed = true;
        add_to(all, value);
      }
    for (const ObjectShape::Pattern& pattern : each.patterns)
      if (x.can_match(x.both(pattern.names, spelled))) {
        listed = true;
        add_to(all, pattern.value);
      }
    if (!listed && each.others) add_to(all, *each.others);
  }
  return all;
}

Shape Shape::all(Expressions& x) {
  Shape shape;
  shape.null = shape.yes = shape.no = true;
  shape.number = any_number(x);
  shape.strings.emplace_back();
  shape.arrays.emplace_back();
  shape.objects.emplace_back();
  return shape;
}

bool Shape::empty(Expressions& x) const {
  return !null && !yes && !no && !x.can_match(number) && arrays.empty() && objects.empty() &&
         std::ranges::none_of(strings, [&](const StringShape& s) { return x.can_match(string_text(x, s)); });
}

bool intersect(Expressions& x, Shape& shape, const Shape& other) {
  shape.null &= other.null;
  shape.yes &= other.yes;
  shape.no &= other.no;
  const Expr any = any_number(x);
  shape.number = shape.number == any   ? other.number
                 : other.number == any ? shape.number
                                       : x.both(shape.number, other.number);
  return product(x, shape.strings, other.strings) && product(x, shape.arrays, other.arrays) &&
         product(x, shape.objects, other.objects);
}

void unite(Expressions& x, Shape& shape, const Shape& other) {
  shape.null |= other.null;
  shape.yes |= other.yes;
  shape.no |= other.no;
  shape.number = x.either(shape.number, other.number);
  append(shape.strings, other.strings);
  append(shape.arrays, other.arrays);
  append(shape.objects, other.objects);
}

Expr string_body(Expressions& x, const StringShape& shape) {
  if (shape.least > shape.most) return Expressions::kNoText;
  const bool free = shape.text == Expressions::kAnything;
  const Expr character = free ? any_json_character(x) : expression_of(x, CodePoints::all(), Spelling::json);
  return x.both(shape.text, x.repeat(character, shape.least, shape.most));
}

Expr string_text(Expressions& x, const StringShape& shape) {
  return x.concat(std::array{x.byte('"'), string_body(x, shape), x.byte('"')});
}

}  // namespace fovea::grammar
