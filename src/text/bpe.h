#pragma once
// Byte-pair encoding: starting from single characters, the neighbours whose pair has the smallest rank merge
// first (the leftmost of equals) until no pair has a rank.
#include <optional>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace fovea::text {

struct BpeOptions {
  bool ignore_merges = false;       ///< a piece that is itself a token is that token
  std::optional<int32_t> unk_id{};  ///< for characters outside the vocabulary; none: they are dropped
  bool fuse_unk = false;            ///< neighbouring unknown characters give one unk
};

class Bpe final : public TokenModel {
 public:
  Bpe(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options);
  void encode(std::string_view piece, std::vector<int32_t>& out) const override;

 private:
  void split_into_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  int32_t symbol_of(std::string_view character, uint32_t code_point) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  // Ids of single characters below this, which is all of the byte-level alphabet, are looked up by index.
  static constexpr uint32_t kDirect = 0x200;
  std::vector<int32_t> direct_;  // [kDirect], -1 = not in the vocabulary
  MergeTable merges_;
  BpeOptions options_;
};

}  // namespace fovea::text
