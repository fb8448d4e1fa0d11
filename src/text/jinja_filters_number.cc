// Filters that read and round numbers.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "text/jinja_filters.h"

namespace fovea::text::jinja {
namespace {

// Without the underscores that Python allows between digits; unchanged where one is elsewhere.
std::string without_underscores(const std::string& text) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && std::isxdigit(static_cast<unsigned char>(text[i]));
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && !(i > 0 && is_digit(i - 1) && is_digit(i + 1))) return text;
    if (text[i] != '_') out += text[i];
  }
  return out;
}

// Python's float(text): nullopt when it isn't one.
std::optional<double> parse_real(const std::string& raw) {
  const std::string text = without_underscores(strip(raw, nullptr, true, true));
  if (text.empty() || text.find_first_of("xX") != std::string::npos) return std::nullopt;
  if (text.find('(') != std::string::npos) return std::nullopt;  // "nan(1)" of C
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(const std::string& raw, int base) {
  std::string text = without_underscores(strip(raw, nullptr, true, true));
  const size_t digits = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (digits == text.size() || text[digits] == ' ' || text[digits] == '-' || text[digits] == '+')
    return std::nullopt;
  // strtoll skips the prefix of base 16 only, and reads "017" as octal in base 0.
  const char prefix =
      text.size() > digits + 2 && text[digits] == '0' ? static_cast<char>(text[digits + 1] | 0x20) : '0';
  const int named = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    text.erase(digits, 2);
    base = named;
    if (!std::isxdigit(static_cast<unsigned char>(text[digits]))) return std::nullopt;
  }
  if (base == 0) base = 10;
  errno = 0;
  char* end = nullptr;
  const int64_t value = std::strtoll(text.c_str(), &end, base);
  if (errno != 0 || end != text.c_str() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value int_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "int", arguments, {"default", "base"});
  const Value fallback = args[0] ? *args[0] : Value::integer(0);
  const int64_t base = args[1] ? want_int(rt, *args[1], "base") : 10;
  if (base != 0 && (base < 2 || base > 36)) rt.fail("int: base must be 0 or from 2 to 36");
  std::optional<int64_t> value;
  if (input.is(Kind::undefined)) rt.fail(input.undefined_message());
  if (input.is_integral()) value = input.as_int();
  if (input.is(Kind::real)) {
    value = truncated(input.as_real());
    if (!value && std::isfinite(input.as_real())) rt.fail("int: the number does not fit in 64 bits");
  }
  if (input.is(Kind::string)) {
    rt.charge(input.weight());
    value = parse_int(input.as_string(), static_cast<int>(base));
    const std::optional<double> real = value ? std::nullopt : parse_real(input.as_string());
    if (real) value = truncated(*real);
  }
  return value ? Value::integer(*value) : fallback;
}

Value float_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "float", arguments, {"default"});
  if (input.is(Kind::undefined)) rt.fail(input.undefined_message());
  if (input.is_number()) return Value::real(input.as_real());
  if (input.is(Kind::string)) {
    rt.charge(input.weight());
    if (const auto value = parse_real(input.as_string())) return Value::real(*value);
  }
  return args[0] ? *args[0] : Value::real(0.0);
}

Value abs_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  bind(rt, "abs", arguments, {});
  if (input.is(Kind::real)) return Value::real(std::abs(input.as_real()));
  if (!input.is_integral()) want_int(rt, input, "the operand of abs");
  return input.as_int() < 0 ? negate(rt, input) : Value::integer(input.as_int());
}

Value round_filter(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "round", arguments, {"precision", "method"});
  if (!input.is_number()) want_int(rt, input, "the operand of round");
  const int64_t precision = args[0] ? want_int(rt, *args[0], "precision") : 0;
  if (precision < -300 || precision > 300) rt.fail("round: precision must be from -300 to 300");
  const std::string method = args[1] ? want_string(rt, *args[1], "method") : "common";
  const double value = input.as_real();
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value::real(std::ceil(value * scale) / scale);
  if (method == "floor") return Value::real(std::floor(value * scale) / scale);
  if (method != "common") rt.fail("round: method must be 'common', 'ceil' or 'floor'");
  if (input.is_integral() && precision >= 0) return input;
  if (!std::isfinite(value)) return input;
  if (precision < 0) {
    const double rounded = std::nearbyint(value * scale) / scale;
    if (!input.is_integral()) return Value::real(rounded);
    const std::optional<int64_t> whole = truncated(rounded);
    if (!whole) rt.fail("round: the result does not fit in 64 bits");
    return Value::integer(*whole);
  }
  // Decimal rounding of the exact value, half to even, is what both printf and Python do.
  std::string text(
      static_cast<size_t>(std::snprintf(nullptr, 0, "%.*f", static_cast<int>(precision), value)) + 1, '\0');
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), value);
  return Value::real(std::strtod(text.c_str(), nullptr));
}

// "1.5 MB", or "1.4 MiB" with binary units.
Value filesizeformat(Runtime& rt, const Value& input, const Arguments& arguments) {
  const Args args = bind(rt, "filesizeformat", arguments, {"binary"});
  const bool binary = flag(args[0], false);
  const Value number = float_filter(rt, input, {});
  const double bytes = number.as_real(), base = binary ? 1024 : 1000;
  if (bytes == 1) return rt.string("1 Byte");
  if (!(std::abs(bytes) < 1e18)) rt.fail("filesizeformat: the number is too large");
  if (bytes < base) return rt.string(std::to_string(static_cast<int64_t>(bytes)) + " Bytes");
  constexpr std::string_view kUnits = "kMGTPE";
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < kUnits.size() && bytes >= unit; ++i)
    unit *= base;
  const std::string prefix = binary && i == 0 ? "K" : std::string(1, kUnits[i]);
  char text[64];
  std::snprintf(text, sizeof text, "%.1f ", base * bytes / unit);
  return rt.string(text + prefix + (binary ? "iB" : "B"));
}

}  // namespace

void add_number_filters(FilterTable& table) {
  table.insert({
      {"abs", abs_filter},
      {"filesizeformat", filesizeformat},
      {"float", float_filter},
      {"int", int_filter},
      {"round", round_filter},
  });
}

}  // namespace fovea::text::jinja
