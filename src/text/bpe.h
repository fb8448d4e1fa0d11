#pragma once
// Byte-pair encoding: starting from single characters, the neighbours whose pair has the smallest rank merge
// first (the leftmost of equals) until no pair has a rank.
#include <array>
#include <optional>
#include <string>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace fovea::text {

struct BpeOptions {
  bool ignore_merges = false;       ///< a piece that is itself a token is that token
  std::optional<int32_t> unk_id{};  ///< for characters outside the vocabulary; none: they are dropped
  bool fuse_unk = false;            ///< neighbouring unknown characters give one unk
  bool byte_fallback = false;       ///< unknown characters become byte tokens where all of theirs exist
  std::string continuing_subword_prefix{};  ///< spelled in front of every character of a piece but the first
  std::string end_of_word_suffix{};         ///< spelled behind the last character of a piece
};

class Bpe final : public TokenModel {
 public:
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options);
  void encode(std::string_view piece, std::vector<int32_t>& out) const override;
  size_t longest_token(bool byte_level) const override;

 private:
  void split_into_symbols(std::string_view piece, std::vector<int32_t>& symbols) const;
  int32_t plain_symbol(std::string_view character, uint32_t code_point) const;
  bool add_byte_tokens(std::string_view symbol, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  // Ids of single characters below this, which is all of the byte-level alphabet, are looked up by index.
  static constexpr uint32_t kDirect = 0x200;
  std::vector<int32_t> direct_;  // [kDirect], -1 = not in the vocabulary
  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
  BpeOptions options_;
};

}  // namespace fovea::text
