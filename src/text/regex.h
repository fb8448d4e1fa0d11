#pragma once
// Regular expressions of pre-tokenizers: Oniguruma syntax as tokenizer.json writes it, run by PCRE2 with JIT.
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/span.h"

namespace fovea::text {

class Regex {
 public:
  /// Unicode classes, `^` and `$` at line ends, `\s` = White_Space, classes inside classes. A pattern that
  /// PCRE2 refuses, is longer than 64 KiB, uses a class intersection (&&) or a negated class inside a class
  /// is an error.
  static Result<Regex> compile(std::string_view pattern);

  /// All matches of valid UTF-8 `text`, left to right, not overlapping, added to `matches`. An empty match
  /// right behind another match does not count. Error: the match limits were reached.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Impl;
  explicit Regex(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace fovea::text
