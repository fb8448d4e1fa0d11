#pragma once
// Stage 2 of tokenizing: rewrites the text between added tokens.
#include <memory>
#include <string>

#include "fovea/result.h"
#include "text/json_value.h"

namespace fovea::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
};

/// From tokenizer.json's "normalizer": null (gives nullptr), NFC, or a Sequence of those.
Result<std::unique_ptr<Normalizer>> parse_normalizer(const Json* spec);

}  // namespace fovea::text
