#include "text/jinja_json.h"

#include <cmath>
#include <cstdio>
#include <list>

#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

class Writer {
 public:
  Writer(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  std::string run(const Value& value) {
    rt_.charge(value.weight());
    write(value, 0);
    return std::move(out_);
  }

 private:
  void check() const {
    if (out_.size() > rt_.limits().output_bytes) rt_.fail("tojson: the text is too large");
  }

  void new_line(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) {
      out_ += *style_.indent;
      check();
    }
  }

  void escape(uint32_t code_unit) {
    char text[8];
    std::snprintf(text, sizeof text, "\\u%04x", code_unit & 0xFFFFu);
    out_ += text;
  }

  void write_string(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      const Utf8Char c = decode_utf8(text);
      const std::string_view bytes = text.substr(0, c.length);
      text.remove_prefix(c.length);
      constexpr std::string_view kShort = "\"\\\n\r\t\f\b";
      constexpr std::string_view kNames = "\"\\nrtfb";
      if (const size_t i = kShort.find(bytes[0]); i != std::string_view::npos) {
        out_.append(1, '\\').append(1, kNames[i]);
      } else if (c.code_point < 0x20 ||
                 (style_.ensure_ascii && c.code_point >= 0x7F && c.code_point < 0x10000)) {
        if (c.code_point == 0x7F) {
          out_ += '\x7f';
        } else {
          escape(c.code_point);
        }
      } else if (style_.ensure_ascii && c.code_point >= 0x10000) {
        escape(0xD800 + ((c.code_point - 0x10000) >> 10));
        escape(0xDC00 + ((c.code_point - 0x10000) & 0x3FF));
      } else {
        out_ += bytes;
      }
    }
    out_ += '"';
    check();
  }

  static std::string real_text(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_to_str(value);
  }

  void write_key(const Value& key) {
    switch (key.kind()) {
      case Kind::string: return write_string(key.as_string());
      case Kind::integer: return write_string(std::to_string(key.as_int()));
      case Kind::real: return write_string(real_text(key.as_real()));
      case Kind::boolean: return write_string(key.as_bool() ? "true" : "false");
      case Kind::none: return write_string("null");
      default: rt_.fail(std::string("tojson: a key is a ") + std::string(type_name(key)));
    }
  }

  template <class Items, class WriteOne>
  void write_items(const Items& items, char open, char close, int level, WriteOne write_one) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      new_line(level + 1);
      write_one(item);
    }
    if (!first) new_line(level);
    out_ += close;
  }

  void write_dict(const Dict& dict, int level) {
    const auto write_one = [&](const Dict::Item& item) {
      write_key(item.first);
      out_ += style_.key_separator;
      write(item.second, level + 1);
    };
    if (!style_.sort_keys) return write_items(dict.items(), '{', '}', level, write_one);
    std::list<Dict::Item> sorted(dict.items().begin(), dict.items().end());
    sorted.sort([&](const Dict::Item& x, const Dict::Item& y) { return less(rt_, x.first, y.first); });
    write_items(sorted, '{', '}', level, write_one);
  }

  // The nesting of values was bounded when they were made.
  void write(const Value& value, int level) {
    switch (value.kind()) {
      case Kind::none: out_ += "null"; break;
      case Kind::boolean: out_ += value.as_bool() ? "true" : "false"; break;
      case Kind::integer: out_ += std::to_string(value.as_int()); break;
      case Kind::real: out_ += value.digits() ? *value.digits() : real_text(value.as_real()); break;
      case Kind::string: write_string(value.as_string()); break;
      case Kind::list:
      case Kind::tuple:
        write_items(value.as_items(), '[', ']', level, [&](const Value& item) { write(item, level + 1); });
        break;
      case Kind::dict: write_dict(value.as_dict(), level); break;
      case Kind::undefined: rt_.fail(std::string("tojson: ") + value.undefined_message());
      default:
        rt_.fail(std::string("tojson: object of type ") + std::string(type_name(value)) +
                 " has no JSON form");
    }
    check();
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Value from_json(const Json& json) {
  if (json.is_null()) return Value::none();
  if (json.boolean()) return Value::boolean(*json.boolean());
  if (json.integer()) return Value::integer(*json.integer());
  if (const auto* large = json.large_integer()) return Value::large_integer(large->value, large->digits);
  if (json.real()) return Value::real(*json.real());
  if (json.string()) return Value::string(to_valid_utf8(*json.string()));
  if (json.array()) {
    std::vector<Value> items;
    items.reserve(json.array()->size());
    for (const Json& item : *json.array())
      items.push_back(from_json(item));
    return Value::list(std::move(items));
  }
  Dict dict;
  for (const auto& [key, value] : *json.object()) {
    dict.set(Value::string(to_valid_utf8(key)), from_json(value));
  }
  return Value::dict(std::move(dict));
}

std::string to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  return Writer(rt, style).run(value);
}

}  // namespace fovea::text::jinja
