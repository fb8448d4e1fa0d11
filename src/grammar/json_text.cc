#include "grammar/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fovea::grammar {
namespace {

constexpr size_t kMaxDigits = 400;

Expr digit(Expressions& x, char first = '0', char last = '9') {
  return first > last ? Expressions::kNoText
                      : x.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

Expr digits(Expressions& x, size_t least, uint32_t most = kNoLimit) {
  return x.repeat(digit(x), static_cast<uint32_t>(least), most);
}

/// Nothing, or a point and digits.
Expr any_fraction(Expressions& x) {
  return x.optional(x.concat(x.byte('.'), digits(x, 1)));
}

Expr natural(Expressions& x) {
  return x.either(x.byte('0'), x.concat(digit(x, '1'), digits(x, 0)));
}

/// Digits of the same length as `bound` that are above it (`sign` > 0) or below.
std::vector<Expr> different(Expressions& x, std::string_view bound, int sign, bool first_not_zero,
                            const Expr& rest, bool fixed) {
  std::vector<Expr> all;
  for (size_t i = 0; i < bound.size(); ++i) {
    const char low = i == 0 && first_not_zero && bound.size() > 1 ? '1' : '0';
    const Expr other =
        sign > 0 ? digit(x, static_cast<char>(bound[i] + 1)) : digit(x, low, static_cast<char>(bound[i] - 1));
    const auto left = static_cast<uint32_t>(bound.size() - i - 1);
    all.push_back(x.concat(std::array{x.literal(bound.substr(0, i)), other,
                                      fixed ? digits(x, left, left) : digits(x, 0), rest}));
  }
  return all;
}

/// Numbers without a sign, at least as large as the bound.
Expr magnitude_from(Expressions& x, const Decimal& bound, bool exclusive) {
  const auto length = bound.whole.size();
  std::vector<Expr> all = different(x, bound.whole, 1, true, any_fraction(x), true);
  all.push_back(x.concat(std::array{digit(x, '1'), digits(x, length), any_fraction(x)}));
  // The same whole part.
  const Expr whole = x.literal(bound.whole);
  const Expr above_zero = x.concat(std::array{x.star(x.byte('0')), digit(x, '1'), digits(x, 0)});
  std::vector<Expr> fractions =
      different(x, bound.fraction, 1, false, Expressions::kEmpty, false);  // digits behind the point
  fractions.push_back(x.concat(x.literal(bound.fraction), exclusive ? above_zero : digits(x, 0)));
  Expr fraction = x.concat(x.byte('.'), x.both(x.either(fractions), digits(x, 1)));
  if (bound.fraction.empty() && !exclusive) fraction = any_fraction(x);
  all.push_back(x.concat(whole, fraction));
  return x.either(all);
}

Expr magnitude_to(Expressions& x, const Decimal& bound, bool exclusive) {
  const auto length = bound.whole.size();
  std::vector<Expr> all = different(x, bound.whole, -1, true, any_fraction(x), true);
  if (length > 1) {
    all.push_back(x.concat(x.byte('0'), any_fraction(x)));
    all.push_back(x.concat(
        std::array{digit(x, '1'), digits(x, 0, static_cast<uint32_t>(length - 2)), any_fraction(x)}));
  }
  const Expr whole = x.literal(bound.whole);
  std::vector<Expr> fractions = different(x, bound.fraction, -1, false, Expressions::kEmpty, false);
  for (size_t i = 1; i < bound.fraction.size(); ++i)
    fractions.push_back(x.literal(bound.fraction.substr(0, i)));
  if (!exclusive) fractions.push_back(x.concat(x.literal(bound.fraction), x.star(x.byte('0'))));
  const Expr some = x.concat(x.byte('.'), x.both(x.either(fractions), digits(x, 1)));
  const bool whole_alone = !bound.fraction.empty() || !exclusive;
  all.push_back(x.concat(whole, whole_alone ? x.optional(some) : some));
  return x.either(all);
}

bool is_zero(const Decimal& d) {
  return d.whole == "0" && d.fraction.empty();
}

}  // namespace

std::string number_text(const text::Json& value) {
  if (value.integer()) return std::to_string(*value.integer());
  if (value.large_integer()) return value.large_integer()->digits;
  if (!value.real() || !std::isfinite(*value.real())) return "";
  const double real = *value.real();
  std::array<char, 512> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), real, std::chars_format::fixed);
  return end.ec == std::errc() ? std::string(text.data(), end.ptr) : "";
}

std::optional<Decimal> Decimal::of(const text::Json& value) {
  std::string text = number_text(value);
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  Decimal out;
  out.negative = text[0] == '-';
  if (out.negative) text.erase(0, 1);
  const size_t point = text.find('.');
  out.whole = text.substr(0, point);
  if (point != std::string::npos) out.fraction = text.substr(point + 1);
  while (out.whole.size() > 1 && out.whole[0] == '0')
    out.whole.erase(0, 1);
  while (!out.fraction.empty() && out.fraction.back() == '0')
    out.fraction.pop_back();
  if (is_zero(out)) out.negative = false;
  return out;
}

Expr any_integer(Expressions& x) {
  return x.concat(x.optional(x.byte('-')), natural(x));
}

Expr plain_number(Expressions& x) {
  return x.concat(any_integer(x), any_fraction(x));
}

Expr shortest_number(Expressions& x) {
  const Expr fraction = x.concat(std::array{x.byte('.'), digits(x, 0), digit(x, '1')});
  const Expr minus_zero = x.literal("-0");
  return x.both(x.concat(any_integer(x), x.optional(fraction)), x.negate(minus_zero));
}

Expr any_number(Expressions& x) {
  ByteSet e, sign;
  e.set('e').set('E');
  sign.set('+').set('-');
  const Expr exponent = x.concat(std::array{x.bytes(e), x.optional(x.bytes(sign)), digits(x, 1)});
  return x.concat(plain_number(x), x.optional(exponent));
}

Expr number_from(Expressions& x, const Decimal& bound, bool exclusive) {
  if (!bound.negative) return magnitude_from(x, bound, exclusive);
  return x.either(x.concat(natural(x), any_fraction(x)),
                  x.concat(x.byte('-'), magnitude_to(x, bound, exclusive)));
}

Expr number_to(Expressions& x, const Decimal& bound, bool exclusive) {
  if (bound.negative) return x.concat(x.byte('-'), magnitude_from(x, bound, exclusive));
  Decimal zero;
  const Expr below = x.concat(x.byte('-'), magnitude_from(x, zero, true));
  return x.either(below, magnitude_to(x, bound, exclusive));
}

std::optional<Expr> multiple_of(Expressions& x, const Decimal& divisor) {
  const std::string all = divisor.whole + divisor.fraction;
  const size_t start = std::min(all.find_first_not_of('0'), all.size());
  uint32_t value = 0;
  const auto end = std::from_chars(all.data() + start, all.data() + all.size(), value);
  if (end.ec != std::errc() || value == 0 || value >= 1U << 31) return std::nullopt;
  const Expr multiple = x.multiple(value, static_cast<uint32_t>(divisor.fraction.size()));
  return x.both(plain_number(x), x.concat(x.optional(x.byte('-')), multiple));
}

Expr scalar_text(Expressions& x, const text::Json& value) {
  if (value.is_null()) return x.literal("null");
  if (value.boolean()) return x.literal(*value.boolean() ? "true" : "false");
  if (value.string())
    return x.concat(std::array{x.byte('"'), literal_of(x, *value.string(), Spelling::json), x.byte('"')});
  return x.literal(number_text(value));
}

}  // namespace fovea::grammar
