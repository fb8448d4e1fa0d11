// Python's operators, subscripts and comparisons.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "text/jinja_loop.h"
#include "text/jinja_runtime.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

[[noreturn]] void refuse_operands(const Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::undefined)) rt.fail(a.undefined_message());
  if (b.is(Kind::undefined)) rt.fail(b.undefined_message());
  rt.fail(std::string("'") + std::string(op) + "' is not defined for " + std::string(type_name(a)) + " and " +
          std::string(type_name(b)));
}

[[noreturn]] void overflow(const Runtime& rt) {
  rt.fail("integer result does not fit in 64 bits");
}

int64_t floor_div(const Runtime& rt, int64_t a, int64_t b) {
  if (b == 0) rt.fail("division by zero");
  if (a == INT64_MIN && b == -1) overflow(rt);
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

int64_t floor_mod(const Runtime& rt, int64_t a, int64_t b) {
  if (b == 0) rt.fail("division by zero");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && ((rest < 0) != (b < 0)) ? rest + b : rest;
}

int64_t integer_power(const Runtime& rt, int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow(rt);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow(rt);
  }
  return result;
}

Value integers(const Runtime& rt, std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) overflow(rt);
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) overflow(rt);
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) overflow(rt);
  } else if (op == "//") {
    result = floor_div(rt, a, b);
  } else if (op == "%") {
    result = floor_mod(rt, a, b);
  } else if (op == "/") {
    if (b == 0) rt.fail("division by zero");
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  } else {
    if (b < 0) {
      if (a == 0) rt.fail("division by zero");
      return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    result = integer_power(rt, a, b);
  }
  return Value::integer(result);
}

Value reals(const Runtime& rt, std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") {
    const double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) rt.fail("the power is not a real number");
    return Value::real(result);
  }
  if (b == 0) rt.fail("division by zero");
  if (op == "/") return Value::real(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return Value::real(rest);
  return Value::real(std::floor((a - rest) / b + 0.5));
}

Value repeat(Runtime& rt, const Value& value, int64_t count) {
  const uint64_t times = count > 0 ? static_cast<uint64_t>(count) : 0;
  const uint64_t weight = value.is(Kind::string) ? value.as_string().size() : value.weight();
  if (weight > 0 && times > rt.limits().output_bytes / weight) rt.fail("the repeated value is too large");
  rt.charge(weight * times);
  if (value.is(Kind::string)) {
    std::string text;
    for (uint64_t i = 0; weight > 0 && i < times; ++i)
      text += value.as_string();
    return rt.string(std::move(text));
  }
  std::vector<Value> items;
  for (uint64_t i = 0; !value.as_items().empty() && i < times; ++i) {
    items.insert(items.end(), value.as_items().begin(), value.as_items().end());
  }
  return value.is(Kind::list) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Value join_sequences(Runtime& rt, const Value& a, const Value& b) {
  std::vector<Value> items = a.as_items();
  items.insert(items.end(), b.as_items().begin(), b.as_items().end());
  return a.is(Kind::list) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Value missing(const Value& object, std::string_view name) {
  return Value::undefined(std::string("'") + std::string(type_name(object)) + " object' has no attribute '" +
                          std::string(name) + "'");
}

Value loop_attribute(Runtime& rt, const Value& object, std::string_view name) {
  const LoopState& loop = object.as_loop();
  const auto at = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::integer(at + 1);
  if (name == "index0") return Value::integer(at);
  if (name == "revindex") return Value::integer(size - at);
  if (name == "revindex0") return Value::integer(size - at - 1);
  if (name == "first") return Value::boolean(at == 0);
  if (name == "last") return Value::boolean(at == size - 1);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(loop.depth + 1);
  if (name == "depth0") return Value::integer(loop.depth);
  if (name == "previtem") {
    return at > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return at + 1 < size ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") return Value::callable({std::string(name), object, nullptr});
  rt.charge(1);
  return missing(object, name);
}

// Attributes of jinja2's Macro.
Value macro_attribute(Runtime& rt, const Value& object, std::string_view name) {
  const Callable& function = object.as_callable();
  const Statement* macro = function.statement;
  if (!macro) return missing(object, name);
  if (name == "name") return rt.string(function.name);
  if (name == "catch_kwargs") return Value::boolean(macro->catches_named);
  if (name == "catch_varargs") return Value::boolean(macro->catches_positional);
  if (name == "caller") return Value::boolean(macro->takes_caller);
  if (name != "arguments") return missing(object, name);
  std::vector<Value> names;
  for (const Parameter& parameter : macro->parameters)
    names.push_back(rt.string(parameter.name));
  return rt.tuple(std::move(names));
}

// Byte positions of the characters of text, and its end.
std::vector<size_t> character_offsets(Runtime& rt, std::string_view text) {
  rt.charge(text.size() * 9);
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

Value string_item(Runtime& rt, const Value& object, int64_t index) {
  const std::string& text = object.as_string();
  const std::vector<size_t> offsets = character_offsets(rt, text);
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  if (index < 0) index += size;
  if (index < 0 || index >= size)
    return Value::undefined(std::string("str object has no element ") + std::to_string(index));
  const auto i = static_cast<size_t>(index);
  return rt.string(text.substr(offsets[i], offsets[i + 1] - offsets[i]));
}

Value sequence_item(const Value& object, int64_t index) {
  const auto size = static_cast<int64_t>(object.as_items().size());
  const int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) {
    return Value::undefined(std::string(type_name(object)) + " object has no element " +
                            std::to_string(index));
  }
  return object.as_items()[static_cast<size_t>(at)];
}

// The indices that Python's slice(start, stop, step) selects from `size` elements.
std::vector<size_t> slice_indices(Runtime& rt, int64_t size, const Value* start, const Value* stop,
                                  const Value* step_value) {
  const auto given = [](const Value* value) { return value && !value->is(Kind::none); };
  const int64_t step = given(step_value) ? want_int(rt, *step_value, "slice step") : 1;
  if (step == 0) rt.fail("slice step cannot be zero");
  const auto bound = [&](const Value* value, int64_t fallback) {
    if (!given(value)) return fallback;
    int64_t at = want_int(rt, *value, "slice bound");
    if (at < 0) at += size;  // can't overflow: size >= 0
    return step > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t first = bound(start, step > 0 ? 0 : size - 1);
  const int64_t last = bound(stop, step > 0 ? size : -1);
  std::vector<size_t> indices;
  if (step > 0) {
    for (int64_t i = first; i < last;) {
      indices.push_back(static_cast<size_t>(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
  } else {
    for (int64_t i = first; i > last;) {
      indices.push_back(static_cast<size_t>(i));
      if (__builtin_add_overflow(i, step, &i)) break;
    }
  }
  return indices;
}

}  // namespace

Value get_attribute(Runtime& rt, const Value& object, std::string_view name) {
  rt.charge(name.size());
  switch (object.kind()) {
    case Kind::undefined: rt.fail(object.undefined_message());
    case Kind::name_space: {
      const Value* member = object.as_namespace().find(name);
      return member ? *member : missing(object, name);
    }
    case Kind::loop: return loop_attribute(rt, object, name);
    default: break;
  }
  if (object.is(Kind::callable)) return macro_attribute(rt, object, name);
  if (object.is(Kind::cycler) && name == "current") {
    const Progress& cycle = object.as_progress();
    return cycle.sequence.items[cycle.next];
  }
  if (is_method(object, name)) return Value::callable({std::string(name), object, nullptr});
  if (is_mutating_method(object, name)) {
    return Value::undefined(std::string("'") + std::string(name) + "' would change a " +
                            std::string(type_name(object)) +
                            ", which templates must not; make a new one with +, or use a namespace");
  }
  if (object.is_group() && (name == "grouper" || name == "list"))
    return object.as_items()[name == "grouper" ? 0 : 1];
  if (object.is(Kind::dict)) {
    rt.charge(object.as_dict().size() < 16 ? object.as_dict().size() : 1);
    if (const Value* item = object.as_dict().find(name)) return *item;
  }
  return missing(object, name);
}

Value get_item(Runtime& rt, const Value& object, const Value& key) {
  if (object.is(Kind::undefined)) rt.fail(object.undefined_message());
  if (object.is(Kind::dict)) {
    const bool indexed = key.is(Kind::string) && object.as_dict().size() >= 16;
    rt.charge(indexed ? key.weight() : object.as_dict().size() + key.weight());
    if (const Value* item = object.as_dict().find(key)) return *item;
  } else if (object.is_sequence() && key.is_integral()) {
    return sequence_item(object, key.as_int());
  } else if (object.is(Kind::string) && key.is_integral()) {
    return string_item(rt, object, key.as_int());
  }
  if (key.is(Kind::undefined)) return Value::undefined(key.undefined_message());
  if (key.is(Kind::string)) return get_attribute(rt, object, key.as_string());
  rt.charge(key.weight());
  return Value::undefined(std::string(type_name(object)) + " object has no element " + to_repr(key));
}

Value get_slice(Runtime& rt, const Value& object, const Value* start, const Value* stop, const Value* step) {
  if (object.is(Kind::undefined)) rt.fail(object.undefined_message());
  if (object.is(Kind::string)) {
    const std::string& text = object.as_string();
    const std::vector<size_t> offsets = character_offsets(rt, text);
    std::string out;
    for (const size_t i : slice_indices(rt, static_cast<int64_t>(offsets.size()) - 1, start, stop, step)) {
      out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
    }
    return rt.string(std::move(out));
  }
  if (!object.is_sequence())
    rt.fail(std::string("'") + std::string(type_name(object)) + "' object can't be sliced");
  const auto size = static_cast<int64_t>(object.as_items().size());
  std::vector<Value> items;
  for (const size_t i : slice_indices(rt, size, start, stop, step))
    items.push_back(object.as_items()[i]);
  return object.is(Kind::list) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Value binary(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integers(rt, op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return reals(rt, op, a.as_real(), b.as_real());
  if (op == "+" && a.is(Kind::string) && b.is(Kind::string)) {
    std::string text;
    text.reserve(a.as_string().size() + b.as_string().size());
    return rt.string(std::move(text.append(a.as_string()).append(b.as_string())));
  }
  if (op == "%" && a.is(Kind::string)) return rt.string(format_percent(rt, a.as_string(), b));
  if (op == "+" && a.is_sequence() && a.kind() == b.kind()) return join_sequences(rt, a, b);
  if (op == "*") {
    const auto repeatable = [](const Value& value) { return value.is(Kind::string) || value.is_sequence(); };
    if (repeatable(a) && b.is_integral()) return repeat(rt, a, b.as_int());
    if (repeatable(b) && a.is_integral()) return repeat(rt, b, a.as_int());
  }
  refuse_operands(rt, op, a, b);
}

Value negate(Runtime& rt, const Value& value) {
  if (value.is_integral()) return integers(rt, "-", 0, value.as_int());
  if (value.is(Kind::real)) return Value::real(-value.as_real());
  refuse_operands(rt, "unary -", value, value);
}

bool less(Runtime& rt, const Value& a, const Value& b) {
  rt.charge(std::min(a.weight(), b.weight()));
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int();
  if (a.is_number() && b.is_number()) return a.as_real() < b.as_real();
  if (a.is(Kind::string) && b.is(Kind::string)) return a.as_string() < b.as_string();
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto &left = a.as_items(), &right = b.as_items();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!equal(left[i], right[i])) return less(rt, left[i], right[i]);
    }
    return left.size() < right.size();
  }
  refuse_operands(rt, "<", a, b);
}

bool compare(Runtime& rt, std::string_view op, const Value& a, const Value& b) {
  if (op == "==" || op == "!=") {
    rt.charge(std::min(a.weight(), b.weight()));
    return equal(a, b) == (op == "==");
  }
  if (op == "in") return contains(rt, b, a);
  if (op == "not in") return !contains(rt, b, a);
  if (a.is_number() && b.is_number() && !(a.is_integral() && b.is_integral())) {
    const double x = a.as_real(), y = b.as_real();  // NaN: every order is false
    return op == "<" ? x < y : op == "<=" ? x <= y : op == ">" ? x > y : x >= y;
  }
  if (op == "<") return less(rt, a, b);
  if (op == ">") return less(rt, b, a);
  return op == "<=" ? !less(rt, b, a) : !less(rt, a, b);
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::string: {
      const std::string& text = container.as_string();
      const std::string& part = want_string(rt, item, "what is looked for in a str");
      rt.charge(text.size() + part.size());
      return part.empty() || memmem(text.data(), text.size(), part.data(), part.size());
    }
    case Kind::list:
    case Kind::tuple:
      rt.charge(container.weight());
      return std::any_of(container.as_items().begin(), container.as_items().end(),
                         [&](const Value& member) { return equal(member, item); });
    case Kind::generator: {
      Progress& rest = container.as_progress();
      rt.charge(container.weight());
      while (rest.next < rest.sequence.items.size()) {
        if (equal(rest.sequence.items[rest.next++], item)) return true;
      }
      return false;
    }
    case Kind::dict:
      rt.charge(container.as_dict().size() + item.weight());
      return container.as_dict().find(item) != nullptr;
    default: rt.fail(std::string("'in' is not defined for ") + std::string(type_name(container)));
  }
}

int64_t length(Runtime& rt, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string:
      rt.charge(value.as_string().size());
      return static_cast<int64_t>(count_code_points(value.as_string()));
    case Kind::list:
    case Kind::tuple: return static_cast<int64_t>(value.as_items().size());
    case Kind::dict: return static_cast<int64_t>(value.as_dict().size());
    case Kind::loop: return static_cast<int64_t>(value.as_loop().items.size());
    case Kind::generator: rt.fail("a generator has no length; put | list before it");
    default: rt.fail(std::string("object of type '") + std::string(type_name(value)) + "' has no length");
  }
}

}  // namespace fovea::text::jinja
