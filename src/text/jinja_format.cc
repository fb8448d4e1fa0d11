// Python's two ways to format text: "%d" % value and "{}".format(value).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "text/jinja_runtime.h"
#include "text/utf8.h"

namespace fovea::text::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // - + blank
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';  // , _
  int precision = -1;
  char type = '\0';
};

constexpr int64_t kMaxPrecision = 1000;

[[noreturn]] void unknown_code(const Runtime& rt, char code, const Value& value) {
  rt.fail(std::string("unknown format code '") + code + "' for " + std::string(type_name(value)));
}

// Widths and precisions: digits at `pos`, bounded so that a short format can't produce unbounded text.
int64_t read_number(const Runtime& rt, std::string_view text, size_t& pos, int64_t limit) {
  int64_t number = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) {
    number = number * 10 + (text[pos] - '0');
    if (number > limit) rt.fail("a width or precision of the format is larger than " + std::to_string(limit));
  }
  return number;
}

int64_t max_width(const Runtime& rt) {
  return static_cast<int64_t>(rt.limits().output_bytes);
}

// `text` is a sign or prefix of `head` bytes and digits; "=" pads between them.
std::string pad(Runtime& rt, std::string text, size_t head, const Spec& spec, char default_align) {
  const int64_t missing = spec.width - static_cast<int64_t>(count_code_points(text));
  if (missing <= 0) return text;
  rt.charge(static_cast<uint64_t>(missing) * spec.fill.size());
  const char align = spec.align ? spec.align : default_align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out = align == '=' ? text.substr(0, head) : "";
  for (int64_t i = 0; i < left; ++i)
    out += spec.fill;
  out += align == '=' ? text.substr(head) : text;
  for (int64_t i = left; i < missing; ++i)
    out += spec.fill;
  return out;
}

// Separators between groups of digits before the fraction.
std::string grouped(const std::string& digits, char separator, size_t size) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string with_sign(bool negative, char sign) {
  return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

std::string digits_of(uint64_t value, unsigned base, bool upper) {
  std::string out;
  do {
    const auto digit = static_cast<char>(value % base);
    out += static_cast<char>(digit < 10 ? '0' + digit : (upper ? 'A' : 'a') + digit - 10);
    value /= base;
  } while (value > 0);
  return {out.rbegin(), out.rend()};
}

std::string format_integer(Runtime& rt, int64_t value, const Spec& spec) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const char type = spec.type;
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::string digits = digits_of(magnitude, base, type == 'X');
  if (spec.precision > 0 && digits.size() < static_cast<size_t>(spec.precision))
    digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
  if (spec.grouping) digits = grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  std::string head = with_sign(value < 0, spec.sign);
  if (spec.alternate && base != 10) head += std::string("0") + type;
  return pad(rt, head + digits, head.size(), spec, '>');
}

std::string print_real(double value, int precision, char type) {
  const bool upper = type >= 'A' && type <= 'Z';
  const char lower = static_cast<char>(type | 0x20);
  const auto form = lower == 'e'   ? std::chars_format::scientific
                    : lower == 'f' ? std::chars_format::fixed
                                   : std::chars_format::general;
  char buffer[310 + kMaxPrecision + 10];  // the largest number has 309 digits before the point
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, form, precision);
  std::string text(buffer, end);
  if (upper) std::replace(text.begin(), text.end(), 'e', 'E');
  return text;
}

// The default form with a precision: "g", but whole numbers keep ".0", and exponents start one digit earlier.
std::string general_real(double value, int precision) {
  const int significant = std::max(precision, 1);
  const std::string scientific = print_real(value, significant - 1, 'e');
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  std::string text = print_real(value, significant, 'g');
  if (exponent == significant - 1 && text.find('e') == std::string::npos) {
    text = scientific;
    const size_t e = text.find('e');
    size_t end = e;
    if (text.find('.') < e) {
      while (text[end - 1] == '0')
        --end;
      if (text[end - 1] == '.') --end;
    }
    return text.substr(0, end) + text.substr(e);
  }
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string format_real(Runtime& rt, double value, const Spec& spec) {
  if (spec.alternate) rt.fail("'#' in the format of a float is not supported");
  const double magnitude = std::abs(value);
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type >= 'A' && spec.type <= 'Z') digits = std::isnan(value) ? "NAN" : "INF";
  } else if (spec.type == '\0') {
    digits = spec.precision < 0 ? real_to_str(magnitude) : general_real(magnitude, spec.precision);
  } else {
    const char type = spec.type == '%' ? 'f' : spec.type;
    digits = print_real(spec.type == '%' ? magnitude * 100 : magnitude,
                        spec.precision < 0 ? 6 : spec.precision, type);
  }
  if (spec.grouping) digits = grouped(digits, spec.grouping, 3);
  if (spec.type == '%') digits += '%';
  const std::string head = with_sign(std::signbit(value) && !std::isnan(value), spec.sign);
  return pad(rt, head + digits, head.size(), spec, '>');
}

std::string format_text(Runtime& rt, std::string text, const Spec& spec, char default_align) {
  if (spec.precision >= 0) {
    size_t end = 0;
    for (int i = 0; i < spec.precision && end < text.size(); ++i)
      end += decode_utf8(std::string_view(text).substr(end)).length;
    text.resize(end);
  }
  return pad(rt, std::move(text), 0, spec, default_align);
}

std::string ascii_repr(Runtime& rt, const Value& value) {
  rt.charge(value.weight());
  const std::string repr = to_repr(value);
  std::string out;
  for (std::string_view rest = repr; !rest.empty();) {
    const Utf8Char c = decode_utf8(rest);
    char text[16];
    const char* format = c.code_point < 0x100 ? "\\x%02x" : c.code_point < 0x10000 ? "\\u%04x" : "\\U%08x";
    std::snprintf(text, sizeof text, format, c.code_point);
    out += c.code_point < 0x80 ? std::string(rest.substr(0, 1)) : text;
    rest.remove_prefix(c.length);
  }
  return out;
}

std::string text_of(Runtime& rt, const Value& value, char conversion) {
  rt.charge(value.weight());
  if (conversion == 'r') return to_repr(value);
  if (conversion == 'a') return ascii_repr(rt, value);
  return to_str(value);
}

// ---- text % value
class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, std::string_view text, const Value& value)
      : rt_(rt), text_(text), value_(value), is_tuple_(value.is(Kind::tuple)) {}

  std::string run() {
    while (pos_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', pos_), text_.size());
      out_.append(text_.substr(pos_, percent - pos_));
      pos_ = percent;
      if (pos_ < text_.size()) conversion();
      if (out_.size() > rt_.limits().output_bytes) rt_.fail("the formatted text is too large");
    }
    const bool all_used = is_tuple_ ? next_ == value_.as_items().size() : next_ == 1;
    const bool may_stay = value_.is(Kind::dict) || value_.is(Kind::list);
    if (!all_used && !may_stay) rt_.fail("not all values of '%' were used by the format");
    return std::move(out_);
  }

 private:
  const Value& next() {
    const size_t count = is_tuple_ ? value_.as_items().size() : 1;
    if (next_ >= count) rt_.fail("the format has more conversions than there are values");
    return is_tuple_ ? value_.as_items()[next_++] : (++next_, value_);
  }

  int64_t star_or_number(int64_t limit) {
    if (pos_ >= text_.size() || text_[pos_] != '*') return read_number(rt_, text_, pos_, limit);
    ++pos_;
    const int64_t number = want_int(rt_, next(), "'*' of the format");
    if (number > limit || number < -limit)
      rt_.fail("'*' of the format is larger than " + std::to_string(limit));
    return number;
  }

  std::optional<Value> named() {
    if (pos_ >= text_.size() || text_[pos_] != '(') return std::nullopt;
    const size_t end = text_.find(')', pos_);
    if (end == std::string_view::npos) rt_.fail("'%(' of the format has no ')'");
    const std::string key(text_.substr(pos_ + 1, end - pos_ - 1));
    pos_ = end + 1;
    if (!value_.is(Kind::dict)) rt_.fail("the format has names, so the value of '%' must be a dict");
    const Value* found = value_.as_dict().find(key);
    if (!found) rt_.fail("the format names '" + key + "', which the dict does not have");
    return *found;
  }

  void flags(Spec& spec) {
    for (; pos_ < text_.size(); ++pos_) {
      switch (text_[pos_]) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign == '+' ? '+' : ' '; break;
        case '#': spec.alternate = true; break;
        case '0': zero_ = true; break;
        default: return;
      }
    }
  }

  void conversion() {
    ++pos_;
    zero_ = false;
    const std::optional<Value> by_name = named();
    Spec spec;
    flags(spec);
    spec.width = star_or_number(max_width(rt_));
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (pos_ < text_.size() && text_[pos_] == '.') {
      ++pos_;
      spec.precision = static_cast<int>(std::max<int64_t>(star_or_number(kMaxPrecision), 0));
    }
    while (pos_ < text_.size() && (text_[pos_] == 'l' || text_[pos_] == 'h' || text_[pos_] == 'L'))
      ++pos_;
    if (pos_ == text_.size()) rt_.fail("incomplete format: '%' at its end; write '%%' for one");
    const char code = text_[pos_++];
    if (code == '%') {
      out_ += '%';
      return;
    }
    out_ += convert(by_name ? *by_name : next(), code, spec);
  }

  std::string convert(const Value& value, char code, Spec& spec) {
    if (code == 's' || code == 'r' || code == 'a')
      return format_text(rt_, text_of(rt_, value, code), spec, '>');
    if (code == 'c') return format_text(rt_, character(value), spec, '>');
    if (zero_ && spec.align != '<') {
      spec.fill = "0";
      spec.align = '=';
    }
    if (std::string_view("diuxXo").find(code) != std::string_view::npos) {
      spec.type = code == 'i' || code == 'u' ? 'd' : code;
      return format_integer(rt_, integer(value, code), spec);
    }
    if (std::string_view("eEfFgG").find(code) != std::string_view::npos) {
      if (!value.is_number()) unknown_code(rt_, code, value);
      spec.type = code;
      return format_real(rt_, value.as_real(), spec);
    }
    unknown_code(rt_, code, value);
  }

  int64_t integer(const Value& value, char code) {
    if (value.is_integral()) return value.as_int();
    const bool decimal = code == 'd' || code == 'i' || code == 'u';
    if (!value.is(Kind::real) || !decimal) unknown_code(rt_, code, value);
    if (!(std::abs(value.as_real()) < 9.2e18)) rt_.fail("the number does not fit in 64 bits");
    return static_cast<int64_t>(value.as_real());
  }

  std::string character(const Value& value) {
    std::string text;
    if (value.is(Kind::string)) {
      text = value.as_string();
    } else {
      const int64_t code = want_int(rt_, value, "the value of %c");
      if (code < 0 || code > 0x10FFFF) rt_.fail("the value of %c is not a character");
      append_utf8(static_cast<uint32_t>(code), text);
    }
    if (count_code_points(text) != 1) rt_.fail("%c needs one character");
    return text;
  }

  Runtime& rt_;
  std::string_view text_;
  const Value& value_;
  bool is_tuple_;
  size_t pos_ = 0, next_ = 0;
  bool zero_ = false;
  std::string out_;
};

// ---- text.format(...)
bool is_align(char c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

Spec parse_spec(const Runtime& rt, std::string_view text) {
  Spec spec;
  size_t pos = 0;
  const size_t first = text.empty() ? 0 : decode_utf8(text).length;
  if (first < text.size() && is_align(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    pos = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    pos = 1;
  }
  const auto at = [&](std::string_view set) {
    return pos < text.size() && set.find(text[pos]) != std::string_view::npos;
  };
  if (at("+- ")) spec.sign = text[pos++];
  if (at("#")) {
    spec.alternate = true;
    ++pos;
  }
  if (at("0")) {
    ++pos;
    if (!spec.align) {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_number(rt, text, pos, max_width(rt));
  if (at(",_")) spec.grouping = text[pos++];
  if (spec.grouping && spec.align == '=' && spec.width > 0)
    rt.fail("a format that pads between sign and digits can't group digits");
  if (at(".")) {
    ++pos;
    if (pos == text.size() || text[pos] < '0' || text[pos] > '9')
      rt.fail("the format has no precision after '.'");
    spec.precision = static_cast<int>(read_number(rt, text, pos, kMaxPrecision));
  }
  if (pos < text.size()) spec.type = text[pos++];
  if (pos < text.size()) rt.fail("invalid format '" + std::string(text.substr(0, 40)) + "'");
  return spec;
}

std::string format_value(Runtime& rt, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return text_of(rt, value, 's');
  const Spec spec = parse_spec(rt, spec_text);
  const auto type_in = [&](std::string_view set) {
    return spec.type == '\0' || set.find(spec.type) != std::string_view::npos;
  };
  if (value.is(Kind::string)) {
    if (!type_in("s") || spec.align == '=' || spec.sign != '-' || spec.alternate || spec.grouping)
      unknown_code(rt, spec.type ? spec.type : '=', value);
    return format_text(rt, value.as_string(), spec, '<');
  }
  if (value.is_integral() && type_in("dnxXob")) {
    if (spec.precision >= 0) rt.fail("a precision is not allowed for int");
    return format_integer(rt, value.as_int(), spec);
  }
  if (value.is_number() && type_in("eEfFgG%")) return format_real(rt, value.as_real(), spec);
  if (value.is_number()) unknown_code(rt, spec.type, value);
  rt.fail(std::string(type_name(value)) + " takes no format; use {} or {!s:...}");
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, const Arguments& arguments) : rt_(rt), arguments_(arguments) {}

  // `depth`: a format spec may contain fields, which may not contain further ones.
  std::string run(std::string_view text, int depth) {
    if (depth > 1) rt_.fail("the format is nested too deep");
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const char c = text[pos];
      if (c != '{' && c != '}') {
        const size_t end = std::min(text.find_first_of("{}", pos), text.size());
        out.append(text.substr(pos, end - pos));
        pos = end;
      } else if (pos + 1 < text.size() && text[pos + 1] == c && depth == 0) {
        out += c;
        pos += 2;
      } else if (c == '}') {
        rt_.fail("single '}' in the format; write '}}' for one");
      } else {
        const size_t end = field_end(text, pos);
        out += field(text.substr(pos + 1, end - pos - 1), depth);
        pos = end + 1;
      }
      if (out.size() > rt_.limits().output_bytes) rt_.fail("the formatted text is too large");
    }
    return out;
  }

 private:
  size_t field_end(std::string_view text, size_t pos) const {
    int open = 0;
    for (; pos < text.size(); ++pos) {
      if (text[pos] == '{') ++open;
      if (text[pos] == '}' && --open == 0) return pos;
    }
    rt_.fail("single '{' in the format; write '{{' for one");
  }

  std::string field(std::string_view text, int depth) {
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    const Value value = look_up(text.substr(0, name_end));
    text.remove_prefix(name_end);
    char conversion = '\0';
    if (text.starts_with('!')) {
      if (text.size() < 2 || std::string_view("rsa").find(text[1]) == std::string_view::npos)
        rt_.fail("unknown conversion in the format; allowed are !r, !s and !a");
      conversion = text[1];
      text.remove_prefix(2);
    }
    if (!text.empty() && text[0] != ':') rt_.fail("expected ':' after the conversion of the format");
    const std::string spec = text.empty() ? std::string() : run(text.substr(1), depth + 1);
    if (!conversion) return format_value(rt_, value, spec);
    return format_value(rt_, rt_.string(text_of(rt_, value, conversion)), spec);
  }

  // name, then ".attribute" and "[key]" any number of times
  Value look_up(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(std::string(path.substr(0, end)));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool item = path[0] == '[';
      const size_t close = item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (close == std::string_view::npos || close < 2)
        rt_.fail("a field of the format has no name or no ']'");
      const std::string key(path.substr(1, close - 1));
      const bool index = key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      value = !item
                  ? get_attribute(rt_, value, key)
                  : get_item(rt_, value, index ? Value::integer(std::atoi(key.c_str())) : Value::string(key));
      if (value.is(Kind::undefined)) rt_.fail(value.undefined_message());
      path.remove_prefix(item ? close + 1 : close);
    }
    return value;
  }

  Value argument(const std::string& name) {
    const bool number = name.find_first_not_of("0123456789") == std::string::npos;
    if (!number) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      rt_.fail("the format names '" + name + "', which is not given");
    }
    if (name.empty() ? manual_ : automatic_ > 0)
      rt_.fail("the format mixes numbered fields with automatic ones");
    manual_ = !name.empty();
    const size_t index = name.empty() ? automatic_++ : name.size() < 10 ? std::stoul(name) : SIZE_MAX;
    if (index >= arguments_.positional.size())
      rt_.fail("the format has more fields than there are arguments");
    return arguments_.positional[index];
  }

  Runtime& rt_;
  const Arguments& arguments_;
  size_t automatic_ = 0;
  bool manual_ = false;
};

}  // namespace

std::string format_percent(Runtime& rt, std::string_view text, const Value& value) {
  rt.charge(text.size());
  return PercentFormatter(rt, text, value).run();
}

std::string format_braces(Runtime& rt, std::string_view text, const Arguments& arguments) {
  return BraceFormatter(rt, arguments).run(text, 0);
}

}  // namespace fovea::text::jinja
