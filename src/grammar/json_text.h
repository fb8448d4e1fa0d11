#pragma once
// Expressions for the pieces of JSON text: strings, numbers within bounds, white space.
#include <optional>
#include <string>
#include <string_view>

#include "grammar/code_points.h"
#include "text/json_value.h"

namespace fovea::grammar {

/// A decimal number: digits without leading zeros, and without trailing zeros behind the point.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;

  /// Nullopt if `value` is not a number, or has more than 400 digits.
  static std::optional<Decimal> of(const text::Json& value);
  bool is_integer() const { return fraction.empty(); }
};

/// Any JSON number.
Expr any_number(Expressions& expressions);
/// A number without an exponent, as bounds and multiples have it.
Expr plain_number(Expressions& expressions);
/// Likewise, each number in one spelling.
Expr shortest_number(Expressions& expressions);
Expr any_integer(Expressions& expressions);
/// Numbers at or beyond a bound, `exclusive`: not at it.
Expr number_from(Expressions& expressions, const Decimal& bound, bool exclusive);
Expr number_to(Expressions& expressions, const Decimal& bound, bool exclusive);
/// Nullopt if the divisor has too many digits.
std::optional<Expr> multiple_of(Expressions& expressions, const Decimal& divisor);

/// The text of a scalar: null, true, 1.5, "x", each in its shortest spelling.
Expr scalar_text(Expressions& expressions, const text::Json& value);
std::string number_text(const text::Json& value);

/// A regular expression for strings of a format of JSON Schema; "" = it is not known.
std::string_view format_pattern(std::string_view format);

/// A format of numbers, OpenAPI's and what code generators write.
struct NumberFormat {
  bool integer;
  std::string_view least, most;  ///< integers: the bounds
};
std::optional<NumberFormat> number_format(std::string_view format);

}  // namespace fovea::grammar
