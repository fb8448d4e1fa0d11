#pragma once
// Template source to tokens, with jinja2's white-space rules under trim_blocks and lstrip_blocks.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text::jinja {

struct Token {
  enum class Type : uint8_t {
    text,
    output_begin,
    output_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    op,
    end,
  };
  Type type;
  int64_t offset = 0;
  std::string text;  ///< text and strings: decoded content; numbers: as written, without underscores
};

/// Valid UTF-8 with "\n" line ends and without one trailing newline, as jinja2 reads a template.
std::string normalize_source(std::string_view source);

/// Tokens of a normalized source, ending with Type::end. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace fovea::text::jinja
