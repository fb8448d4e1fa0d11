#pragma once
// The tokens of an expression.
#include <cstddef>
#include <string>
#include <string_view>

#include "fovea/result.h"

namespace fovea::flex {

struct Token {
  enum class Kind { end, integer, real, name, symbol };
  Kind kind = Kind::end;
  std::string_view text = {};  ///< a part of the expression; empty at its end
  size_t at = 0;               ///< offset of `text` in bytes
  double value = 0;            ///< of an integer or a real
};

class Lexer {
 public:
  /// `what` ("mask", "score") begins every message. `text` must outlive the lexer.
  Lexer(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  /// The next token. Errors: a character that begins no token, a malformed number, an integer beyond 32 bits.
  Result<Token> next();
  /// "mask, column 7: expected a condition, found '+'"
  Error expected(const Token& found, std::string_view expectation) const;
  Error error(size_t at, std::string_view message) const;

 private:
  Result<Token> number(size_t from);

  std::string_view what_, text_;
  size_t at_ = 0;
};

}  // namespace fovea::flex
