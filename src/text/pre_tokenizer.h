#pragma once
// Stage 3 of tokenizing: cuts normalized text into the pieces that the model may not merge across.
#include <memory>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "text/json_value.h"
#include "text/span.h"

namespace fovea::text {

/// A text and the pieces it is cut into, in order; bytes outside the pieces were removed.
struct Pieces {
  std::string text;
  std::vector<Span> spans;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status apply(Pieces& pieces) const = 0;
  /// How many ByteLevel stages are inside; the byte-level model needs exactly one.
  virtual int byte_level_stages() const { return 0; }
};

/// From tokenizer.json's "pre_tokenizer": Split, ByteLevel, Digits, or a Sequence of those.
Result<std::unique_ptr<PreTokenizer>> parse_pre_tokenizer(const Json* spec);

// One file each.
Result<std::unique_ptr<PreTokenizer>> parse_split(const Json& spec);
Result<std::unique_ptr<PreTokenizer>> parse_byte_level(const Json& spec);
Result<std::unique_ptr<PreTokenizer>> parse_digits(const Json& spec);

}  // namespace fovea::text
