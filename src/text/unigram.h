#pragma once
// The unigram language model of SentencePiece: segments a piece into the tokens with the largest sum of
// scores (log probabilities).
#include <array>
#include <vector>

#include "text/byte_trie.h"
#include "text/token_model.h"

namespace fovea::text {

class Unigram final : public TokenModel {
 public:
  /// `scores` by id, finite. A character that is no token costs the smallest score minus 10.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, int32_t unk_id, bool byte_fallback);

  /// O(length x longest token). Neighbouring unknown characters become one unk, or their byte tokens.
  void encode(std::string_view piece, std::vector<int32_t>& out) const override;

 private:
  struct Node {
    double score;  // of the best segmentation up to here
    size_t start;  // of its last token
    int32_t id;    // -1: no token ends here
  };
  void find_best(std::string_view piece, std::vector<Node>& best) const;
  void emit(std::string_view text, std::vector<int32_t>& out) const;

  std::vector<double> scores_;
  double unk_score_;
  int32_t unk_id_;
  bool byte_fallback_;
  std::array<int32_t, 256> byte_ids_;
  ByteTrie trie_;
};

}  // namespace fovea::text
