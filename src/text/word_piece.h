#pragma once
// WordPiece: the longest token that a word starts with, then the longest continuation, and so on; a word that
// is not covered completely is one unk.
#include <string>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace fovea::text {

struct WordPieceOptions {
  int32_t unk_id = 0;
  std::string continuing_subword_prefix = "##";
  size_t max_input_chars_per_word = 100;  ///< longer words are unk
};

class WordPiece final : public TokenModel {
 public:
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options);
  void encode(std::string_view piece, std::vector<int32_t>& out) const override;

 private:
  int32_t unk_id_;
  size_t max_chars_;
  ByteTrie starts_;         // all tokens
  ByteTrie continuations_;  // tokens with the prefix, stored without it
};

}  // namespace fovea::text
