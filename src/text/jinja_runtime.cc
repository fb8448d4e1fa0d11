#include "text/jinja_runtime.h"

#include <algorithm>

#include "text/utf8.h"

namespace fovea::text::jinja {

void Runtime::step() {
  if (++steps_ > limits_.steps) {
    fail(std::string("the template takes more than ") + std::to_string(limits_.steps) + " steps");
  }
}

void Runtime::charge(uint64_t amount) {
  work_ += amount;
  if (work_ > limits_.work) {
    fail(std::string("the template handles more than ") + std::to_string(limits_.work >> 20) +
         " MiB of data");
  }
}

Value Runtime::check(Value value) {
  if (value.weight() > limits_.output_bytes) {
    fail(std::string("a value is larger than ") + std::to_string(limits_.output_bytes >> 20) + " MiB");
  }
  if (value.nesting() > limits_.value_nesting) {
    fail(std::string("a value is nested deeper than ") + std::to_string(limits_.value_nesting) + " levels");
  }
  return value;
}

Value Runtime::string(std::string text) {
  charge(text.size() + 16);
  return check(Value::string(std::move(text)));
}
Value Runtime::list(std::vector<Value> items) {
  charge(items.size() * 16 + 16);
  return check(Value::list(std::move(items)));
}
Value Runtime::tuple(std::vector<Value> items) {
  charge(items.size() * 16 + 16);
  return check(Value::tuple(std::move(items)));
}
Value Runtime::dict(Dict items) {
  charge(items.size() * 32 + 32);
  return check(Value::dict(std::move(items)));
}
Value Runtime::generator(std::vector<Value> items) {
  charge(items.size() * 16 + 16);
  return check(Value::progress(Kind::generator, std::move(items)));
}
Value Runtime::new_namespace() {
  charge(64);
  return Value::name_space(&namespaces_.emplace_back());
}

std::vector<Value> Runtime::iterate(const Value& value) {
  std::vector<Value> out;
  switch (value.kind()) {
    case Kind::undefined: return out;
    case Kind::list:
    case Kind::tuple: charge(value.as_items().size() * 16); return value.as_items();
    case Kind::dict:
      charge(value.as_dict().size() * 16);
      for (const auto& [key, unused] : value.as_dict().items())
        out.push_back(key);
      return out;
    case Kind::generator: {
      Progress& rest = value.as_progress();
      const auto begin = rest.sequence.items.begin() + static_cast<std::ptrdiff_t>(rest.next);
      out.assign(begin, rest.sequence.items.end());
      rest.next = rest.sequence.items.size();
      charge(out.size() * 16);
      return out;
    }
    case Kind::string: {
      charge(value.as_string().size() * 32);
      for (std::string_view rest = value.as_string(); !rest.empty();) {
        const size_t length = decode_utf8(rest).length;
        out.push_back(Value::string(std::string(rest.substr(0, length))));
        rest.remove_prefix(length);
      }
      return out;
    }
    default: fail(std::string("'") + std::string(type_name(value)) + "' object is not iterable");
  }
}

std::vector<const Value*> bind(const Runtime& rt, std::string_view what, const Arguments& arguments,
                               std::initializer_list<std::string_view> parameters) {
  std::vector<const Value*> out(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    rt.fail(std::string(what) + " takes at most " + std::to_string(parameters.size()) + " arguments, " +
            std::to_string(arguments.positional.size()) + " were given");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i)
    out[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) rt.fail(std::string(what) + " has no argument '" + name + "'");
    const auto i = static_cast<size_t>(it - parameters.begin());
    if (out[i]) rt.fail(std::string(what) + " got two values for argument '" + name + "'");
    out[i] = &value;
  }
  return out;
}

int64_t want_int(const Runtime& rt, const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) rt.fail(value.undefined_message());
  if (!value.is_integral())
    rt.fail(std::string(what) + " must be an int, not " + std::string(type_name(value)));
  return value.as_int();
}

const std::string& want_string(const Runtime& rt, const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) rt.fail(value.undefined_message());
  if (!value.is(Kind::string))
    rt.fail(std::string(what) + " must be a str, not " + std::string(type_name(value)));
  return value.as_string();
}

}  // namespace fovea::text::jinja
