#pragma once
// What Split and Replace stages search for: a literal or a regular expression.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"
#include "text/regex.h"
#include "text/span.h"

namespace fovea::text {

class Pattern {
 public:
  /// From {"String": text} or {"Regex": pattern}; `path` names it in errors ("tokenizer.json:
  /// Split.pattern").
  static Result<Pattern> parse(const Json* spec, std::string_view path);

  /// All matches in valid UTF-8 `text`, as Regex::find_all; an empty literal matches nowhere.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

  /// The text of a String pattern; null for a Regex.
  const std::string* literal() const { return regex_ ? nullptr : &literal_; }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

}  // namespace fovea::text
