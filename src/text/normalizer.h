#pragma once
// Stage 2 of tokenizing: rewrites the text between added tokens.
#include <memory>
#include <string>

#include "fovea/result_fwd.h"
#include "text/json_value.h"

namespace fovea::text {

/// Longest text that one Replace or Prepend may insert; real ones insert one character.
constexpr size_t kMaxInsertedBytes = 256;

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// Input and result are valid UTF-8. Errors: a pattern exceeds its match limits, or the text
  /// grows too long.
  virtual Result<std::string> apply(std::string text) const = 0;
  /// N bytes become at least N / most_shrink(); 0 = no such bound.
  virtual size_t most_shrink() const { return 0; }
};

/// From tokenizer.json's "normalizer"; null gives nullptr.
Result<std::unique_ptr<Normalizer>> parse_normalizer(const Json* spec);

// bert_normalizer.cc, precompiled_normalizer.cc, replace_normalizer.cc
Result<std::unique_ptr<Normalizer>> parse_bert_normalizer(const Json& spec);
Result<std::unique_ptr<Normalizer>> parse_precompiled(const Json& spec);
Result<std::unique_ptr<Normalizer>> parse_replace_normalizer(const Json& spec);
Result<std::unique_ptr<Normalizer>> parse_prepend(const Json& spec);

// simple_normalizers.cc
Result<std::unique_ptr<Normalizer>> parse_strip_normalizer(const Json& spec);
/// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, ByteLevel; nullptr for another type.
std::unique_ptr<Normalizer> make_plain_normalizer(std::string_view type);

}  // namespace fovea::text
