#pragma once
// Stage 4 of tokenizing: one piece of text to token ids.
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"
#include "text/vocabulary.h"

namespace fovea::text {

class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;
  /// Appends the ids of `piece`, valid UTF-8. Thread-safe.
  virtual void encode(std::string_view piece, std::vector<int32_t>& out) const = 0;
  /// Upper bound on the bytes of a piece per id; 0 = no bound, since characters outside the vocabulary may be
  /// dropped or share one id. `byte_level`: pieces are in the byte-level alphabet, and the bound counts the
  /// bytes that they spell.
  virtual size_t longest_token(bool /*byte_level*/) const { return 0; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

/// From tokenizer.json's "model": BPE, Unigram, WordPiece or WordLevel.
Result<std::unique_ptr<TokenModel>> parse_token_model(const Json* spec);

// bpe.cc, unigram.cc, word_piece.cc, word_level.cc
Result<std::unique_ptr<TokenModel>> parse_bpe(const Json& spec);
Result<std::unique_ptr<TokenModel>> parse_unigram(const Json& spec);
Result<std::unique_ptr<TokenModel>> parse_word_piece(const Json& spec);
Result<std::unique_ptr<TokenModel>> parse_word_level(const Json& spec);

/// The id of model.unk_token, which the vocabulary must have; nullopt when the file names none.
Result<std::optional<int32_t>> parse_unk_token(const Json& spec, const Vocabulary& vocabulary);
/// model.vocab as an object.
Result<Vocabulary> parse_vocab_object(const Json& spec);

}  // namespace fovea::text
