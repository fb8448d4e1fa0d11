#pragma once
// Sets of Unicode characters, and expressions for one character of a set: its UTF-8 bytes, or its spellings
// in a JSON string.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expressions.h"

namespace fovea::grammar {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

/// Surrogates may be in a set; expressions leave them out.
class CodePoints {
 public:
  CodePoints() = default;
  CodePoints(uint32_t first, uint32_t last) { add(first, last); }
  static CodePoints all() { return {0, kLastCodePoint}; }

  CodePoints& add(uint32_t first, uint32_t last);
  CodePoints& add(const CodePoints& other);
  CodePoints inverted() const;
  CodePoints without(const CodePoints& other) const;
  CodePoints intersected(const CodePoints& other) const;
  /// With the other letter case of each ASCII letter.
  CodePoints any_case() const;
  bool contains(uint32_t code_point) const;
  bool empty() const { return ranges_.empty(); }
  /// Ascending, without gaps of length 0 between them.
  const std::vector<std::pair<uint32_t, uint32_t>>& ranges() const& { return ranges_; }
  std::vector<std::pair<uint32_t, uint32_t>> ranges() && { return std::move(ranges_); }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

/// How the characters of a text are written.
enum class Spelling : uint8_t {
  utf8,
  /// Inside a JSON string, each character in one way: an escape only where JSON requires one, the short one
  /// if there is one.
  json,
};

Expr expression_of(Expressions& expressions, const CodePoints& set, Spelling spelling);
/// `text` must be valid UTF-8.
Expr literal_of(Expressions& expressions, std::string_view text, Spelling spelling);

/// One character of a JSON string in any of its spellings: \/ and \u0041 too, surrogates only in pairs.
Expr any_json_character(Expressions& expressions);

}  // namespace fovea::grammar
