#pragma once
// Stage 4 of tokenizing: one piece of text to token ids.
#include <memory>
#include <string_view>
#include <vector>

#include "fovea/result.h"
#include "text/json_value.h"
#include "text/vocabulary.h"

namespace fovea::text {

class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;
  /// Appends the ids of `piece`, valid UTF-8. Thread-safe.
  virtual void encode(std::string_view piece, std::vector<int32_t>& out) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

/// From tokenizer.json's "model"; BPE only.
Result<std::unique_ptr<TokenModel>> parse_token_model(const Json* spec);

Result<std::unique_ptr<TokenModel>> parse_bpe(const Json& spec);

}  // namespace fovea::text
