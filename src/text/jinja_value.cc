#include "text/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja_loop.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

constexpr size_t kIndexFrom = 16;  // smaller dicts are searched one by one

template <class T>
std::shared_ptr<const void> share(T object) {
  return std::make_shared<const T>(std::move(object));
}

Sequence measured(std::vector<Value> items) {
  Sequence sequence;
  for (const Value& item : items) {
    sequence.nesting = std::max(sequence.nesting, item.nesting() + 1);
    sequence.weight += item.weight();
  }
  sequence.items = std::move(items);
  return sequence;
}

std::shared_ptr<const void> share_items(std::vector<Value> items) {
  return share(measured(std::move(items)));
}

void append_quoted(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  while (!text.empty()) {
    const Utf8Char c = decode_utf8(text);
    const std::string_view bytes = text.substr(0, c.length);
    text.remove_prefix(c.length);
    if (bytes[0] == quote || bytes[0] == '\\') {
      out.append(1, '\\').append(bytes);
    } else if (bytes[0] == '\n' || bytes[0] == '\r' || bytes[0] == '\t') {
      out.append(bytes[0] == '\n' ? "\\n" : bytes[0] == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c.code_point)) {
      out.append(bytes);
    } else {
      char escape[16];
      const char* format = c.code_point < 0x100 ? "\\x%02x" : c.code_point < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape, sizeof escape, format, c.code_point);
      out += escape;
    }
  }
  out += quote;
}

// Namespaces may hold each other, so the nesting limit of values does not bound the depth.
constexpr int kMaxReprDepth = 200;

void append_repr(const Value& value, int depth, std::string& out);

void append_items(const std::vector<Value>& items, int depth, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(items[i], depth, out);
  }
}

void append_dict(const Dict& dict, int depth, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) out += ", ";
    first = false;
    append_repr(key, depth, out);
    out += ": ";
    append_repr(value, depth, out);
  }
  out += '}';
}

void append_namespace(const Namespace& space, int depth, std::string& out) {
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, value] : space.members) {
    if (!first) out += ", ";
    first = false;
    append_quoted(name, out);
    out += ": ";
    // Nested namespaces are not printed: they could repeat without end.
    if (value.is(Kind::name_space)) {
      out += "<Namespace>";
    } else {
      append_repr(value, depth, out);
    }
  }
  out += "}>";
}

void append_repr(const Value& value, int depth, std::string& out) {
  if (depth > kMaxReprDepth) {
    out += "...";
    return;
  }
  switch (value.kind()) {
    case Kind::undefined: out += "Undefined"; break;
    case Kind::none: out += "None"; break;
    case Kind::boolean: out += value.as_bool() ? "True" : "False"; break;
    case Kind::integer: out += std::to_string(value.as_int()); break;
    case Kind::real: out += value.digits() ? *value.digits() : real_to_str(value.as_real()); break;
    case Kind::string: append_quoted(value.as_string(), out); break;
    case Kind::list:
      out += '[';
      append_items(value.as_items(), depth + 1, out);
      out += ']';
      break;
    case Kind::tuple:
      out += '(';
      append_items(value.as_items(), depth + 1, out);
      out += value.as_items().size() == 1 ? ",)" : ")";
      break;
    case Kind::dict: append_dict(value.as_dict(), depth + 1, out); break;
    case Kind::name_space:
      if (depth > 0) {
        out += "<Namespace>";
      } else {
        append_namespace(value.as_namespace(), depth + 1, out);
      }
      break;
    case Kind::loop:
      out += std::string("<LoopContext ") + std::to_string(value.as_loop().index + 1) + "/" +
             std::to_string(value.as_loop().items.size()) + ">";
      break;
    case Kind::generator:
    case Kind::cycler:
    case Kind::joiner: out.append("<").append(type_name(value)).append(">"); break;
    case Kind::callable: out += "<function " + value.as_callable().name + ">"; break;
  }
}

// Two keys have the same canonical text if and only if they are equal.
std::string canonical(const Value& key) {
  std::string text;
  switch (key.kind()) {
    case Kind::string: return text.append(1, 's').append(key.as_string());
    case Kind::boolean:
    case Kind::integer: return text.append(1, 'i').append(std::to_string(key.as_int()));
    case Kind::real: {
      const double value = key.as_real();
      const bool whole = value == std::floor(value) && std::abs(value) < 9e18;
      if (whole) return text.append(1, 'i').append(std::to_string(static_cast<int64_t>(value)));
      return text.append(1, 'r').append(real_to_str(value));
    }
    case Kind::tuple:
      text += 't';
      for (const Value& item : key.as_items()) {
        const std::string part = canonical(item);
        text.append(std::to_string(part.size())).append(1, ':').append(part);
      }
      return text;
    default: return std::string(type_name(key));
  }
}

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

bool equal_dicts(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  return std::all_of(a.items().begin(), a.items().end(), [&](const Dict::Item& item) {
    const Value* other = b.find(item.first);
    return other && equal(item.second, *other);
  });
}

}  // namespace

Value Value::undefined(std::string what) {
  // The message contains any text that a template looked up, but weight() counts undefined values as small.
  constexpr size_t kMaxMessage = 200;
  if (what.size() > kMaxMessage) what = what.substr(0, kMaxMessage) + "...";
  Value value(Kind::undefined);
  value.object_ = share(std::move(what));
  return value;
}
Value Value::boolean(bool boolean) {
  Value value(Kind::boolean);
  value.scalar_.boolean = boolean;
  return value;
}
Value Value::integer(int64_t integer) {
  Value value(Kind::integer);
  value.scalar_.integer = integer;
  return value;
}
Value Value::real(double real) {
  Value value(Kind::real);
  value.scalar_.real = real;
  return value;
}
Value Value::large_integer(double real, std::string digits) {
  Value value = Value::real(real);
  value.object_ = share(std::move(digits));
  return value;
}
Value Value::string(std::string text) {
  Value value(Kind::string);
  value.object_ = share(std::move(text));
  return value;
}
Value Value::list(std::vector<Value> items) {
  Value value(Kind::list);
  value.object_ = share_items(std::move(items));
  return value;
}
Value Value::tuple(std::vector<Value> items) {
  Value value(Kind::tuple);
  value.object_ = share_items(std::move(items));
  return value;
}
Value Value::dict(Dict items) {
  Value value(Kind::dict);
  value.object_ = share(std::move(items));
  return value;
}
Value Value::group(Value grouper, Value list) {
  Value value(Kind::tuple);
  Sequence sequence = measured({std::move(grouper), std::move(list)});
  sequence.group = true;
  value.object_ = share(std::move(sequence));
  return value;
}
Value Value::progress(Kind kind, std::vector<Value> items) {
  Value value(kind);
  value.object_ = std::make_shared<Progress>(Progress{measured(std::move(items)), 0});
  return value;
}
Value Value::name_space(Namespace* object) {
  Value value(Kind::name_space);
  value.scalar_.space = object;
  return value;
}
Value Value::loop(std::shared_ptr<LoopState> state) {
  Value value(Kind::loop);
  value.object_ = std::move(state);
  return value;
}
Value Value::callable(Callable object) {
  Value value(Kind::callable);
  value.object_ = share(std::move(object));
  return value;
}

const std::string* Value::digits() const {
  return is(Kind::real) ? static_cast<const std::string*>(object_.get()) : nullptr;
}
const std::vector<Value>& Value::as_items() const {
  return static_cast<const Sequence*>(object_.get())->items;
}
LoopState& Value::as_loop() const {
  return *const_cast<LoopState*>(static_cast<const LoopState*>(object_.get()));
}
Progress& Value::as_progress() const {
  return *const_cast<Progress*>(static_cast<const Progress*>(object_.get()));
}
bool Value::is_group() const {
  return is(Kind::tuple) && static_cast<const Sequence*>(object_.get())->group;
}
const Callable& Value::as_callable() const {
  return *static_cast<const Callable*>(object_.get());
}
std::string Value::undefined_message() const {
  return object_ ? *static_cast<const std::string*>(object_.get()) : std::string("value is undefined");
}

int Value::nesting() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple: return static_cast<const Sequence*>(object_.get())->nesting;
    case Kind::dict: return as_dict().nesting();
    case Kind::generator:
    case Kind::cycler:
    case Kind::joiner: return as_progress().sequence.nesting;
    case Kind::callable: return as_callable().self.nesting() + 1;
    case Kind::loop: return as_loop().nesting;
    default: return 0;
  }
}

uint64_t Value::weight() const {
  switch (kind_) {
    case Kind::string: return as_string().size() + 1;
    case Kind::real: return digits() ? digits()->size() + 1 : 1;
    case Kind::list:
    case Kind::tuple: return static_cast<const Sequence*>(object_.get())->weight;
    case Kind::dict: return as_dict().weight();
    case Kind::callable: return as_callable().self.weight() + 1;
    case Kind::generator:
    case Kind::cycler:
    case Kind::joiner: return as_progress().sequence.weight;
    default: return 1;
  }
}

size_t Dict::position(const Value& key) const {
  if (items_.size() >= kIndexFrom) {
    const auto it = index_.find(canonical(key));
    return it == index_.end() ? items_.size() : it->second;
  }
  for (size_t i = 0; i < items_.size(); ++i) {
    if (equal(items_[i].first, key)) return i;
  }
  return items_.size();
}

const Value* Dict::find(const Value& key) const {
  const size_t i = position(key);
  return i < items_.size() ? &items_[i].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (items_.size() >= kIndexFrom) return find(Value::string(std::string(key)));
  for (const Item& item : items_) {
    if (item.first.is(Kind::string) && item.first.as_string() == key) return &item.second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value) {
  nesting_ = std::max({nesting_, key.nesting() + 1, value.nesting() + 1});
  weight_ += key.weight() + value.weight();
  const size_t i = position(key);
  if (i < items_.size()) {
    items_[i].second = std::move(value);
    return;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() < kIndexFrom) return;
  for (size_t k = items_.size() == kIndexFrom ? 0 : i; k < items_.size(); ++k) {
    index_.emplace(canonical(items_[k].first), k);
  }
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [member, value] : members) {
    if (member == name) return &value;
  }
  return nullptr;
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return value.as_bool();
    case Kind::integer: return value.as_int() != 0;
    case Kind::real: return value.as_real() != 0;
    case Kind::string: return !value.as_string().empty();
    case Kind::list:
    case Kind::tuple: return !value.as_items().empty();
    case Kind::dict: return value.as_dict().size() > 0;
    default: return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_real() == b.as_real();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string: return a.as_string() == b.as_string();
    case Kind::list:
    case Kind::tuple: return equal_items(a.as_items(), b.as_items());
    case Kind::dict: return equal_dicts(a.as_dict(), b.as_dict());
    case Kind::name_space: return &a.as_namespace() == &b.as_namespace();
    case Kind::loop: return &a.as_loop() == &b.as_loop();
    case Kind::generator:
    case Kind::cycler:
    case Kind::joiner: return &a.as_progress() == &b.as_progress();
    case Kind::callable: return &a.as_callable() == &b.as_callable();
    default: return true;  // undefined, none
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::name_space: return "Namespace";
    case Kind::loop: return "LoopContext";
    case Kind::generator: return "generator";
    case Kind::cycler: return "Cycler";
    case Kind::joiner: return "Joiner";
    case Kind::callable: return "function";
  }
  return "";
}

std::string real_to_str(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  // d.ddde+XX -> digits and exponent; Python writes exponents below -4 and from 16 on.
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) {
    out.append(text.substr(0, e)).append(exponent < 0 ? "e-" : "e+");
    const std::string magnitude = std::to_string(std::abs(exponent));
    return out.append(magnitude.size() < 2 ? "0" : "").append(magnitude);
  }
  std::string digits(text.substr(0, 1));
  if (e > 2) digits.append(text.substr(2, e - 2));
  if (exponent < 0) return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out.append(digits).append(whole - digits.size(), '0').append(".0");
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(value, 0, out);
  return out;
}

std::string to_str(const Value& value) {
  if (value.is(Kind::string)) return value.as_string();
  if (value.is(Kind::undefined)) return {};
  return to_repr(value);
}

}  // namespace fovea::text::jinja
