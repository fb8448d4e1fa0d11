#pragma once
// Regular expressions as people write them, the common part of ECMAScript's, Python's and Rust's syntax, to
// expressions over bytes.
#include <string_view>

#include "fovea/result.h"
#include "grammar/code_points.h"

namespace fovea::grammar {

struct RegexOptions {
  Spelling spelling = Spelling::utf8;
  /// A JSON schema's pattern: it matches if any part of the text does, unless it has ^ and $.
  bool search = false;
  bool ignore_case = false;  ///< ASCII letters only
  bool dot_all = false;      ///< `.` matches line ends too
};

/// Supported: literals, `.`, classes, escapes (\d \w \s \D \W \S, \t \n \r \f \v \0, \xHH, \uHHHH, \u{H},
/// \p{...} of general categories), groups (capturing or not, named), alternatives, * + ? {n} {n,} {n,m} {,m}
/// and their lazy forms, ^ and $ (\A, \z) at the ends of the pattern or of alternatives there, the flags i
/// and s at the start ((?i)) or of a group ((?i:...)), lookahead at the end's or the beginning's place.
/// Errors name what is not: back references, lookbehind,
/// \b, possessive repeats, ^ or $ in the middle; and patterns that nest deeper than 200 levels or need too
/// much memory.
Result<Expr> compile_regex(Expressions& expressions, std::string_view pattern, const RegexOptions& options);

}  // namespace fovea::grammar
