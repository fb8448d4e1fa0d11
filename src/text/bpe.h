#pragma once
// Byte-pair encoding: a piece starts as single characters; the adjacent pair with the smallest rank merges
// first (the leftmost on ties), until no pair has a rank.
#include <array>
#include <optional>
#include <string>

#include "text/merge_table.h"
#include "text/token_model.h"

namespace fovea::text {

struct BpeOptions {
  bool ignore_merges = false;       ///< a piece that is a token is not split
  std::optional<int32_t> unk_id{};  ///< for characters outside the vocabulary; without it they are dropped
  bool fuse_unk = false;            ///< adjacent unknown characters give one unk
  bool byte_fallback = false;       ///< unknown characters become byte tokens if all of their bytes have one
  std::string continuing_subword_prefix{};  ///< prefix of every character of a piece except the first
  std::string end_of_word_suffix{};         ///< suffix of the last character of a piece
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

  // Characters below this (they include the byte-level alphabet) are looked up by index.
  static constexpr uint32_t kDirect = 0x200;
  std::vector<int32_t> direct_;  // [kDirect], -1 = not in the vocabulary
  std::array<int32_t, 256> byte_ids_;
  MergeTable merges_;
  BpeOptions options_;
};

}  // namespace fovea::text
