#pragma once
// The tokens of a vocabulary as tries over their bytes: one for tokens of plain characters of each length,
// whose masks are added at once where a constraint allows any plain characters, and one for all others.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace fovea::grammar {

/// Begins and ends the bytes of a special token's text, so that no text spells a special token.
inline constexpr char kSpecialMark = '\xFF';

class TokenTrie {
 public:
  /// In preorder; `after` is the first node that is not below this one.
  struct Node {
    uint32_t after = 0;
    int32_t token = -1;  ///< that ends here, -1 = none
    uint16_t depth = 0;  ///< bytes before this node's
    uint8_t byte = 0;
  };
  struct Bucket {
    uint32_t characters = 0;  ///< of the longest of its tokens; 0 = tokens that are not plain
    uint32_t fewest = 0;      ///< of the shortest
    std::vector<Node> nodes;
    std::vector<uint32_t> mask;  ///< of its tokens
  };

  /// `bytes(id)`: of each id below `vocab`, "" = never allowed. `special(id)`: its text is that of a special
  /// token. `ends`: ids that end an answer; they are never part of a text.
  TokenTrie(int vocab, const std::function<std::string(int32_t)>& bytes,
            const std::function<bool(int32_t)>& special, std::vector<int32_t> ends);
  static std::shared_ptr<const TokenTrie> make(const Tokenizer& tokenizer, std::vector<int32_t> ends);

  int vocab() const { return vocab_; }
  size_t mask_words() const { return (static_cast<size_t>(vocab_) + 31) / 32; }
  /// "" for a token that is never part of a text.
  std::string_view bytes(int32_t token) const;
  std::span<const int32_t> ends() const { return ends_; }
  bool is_end(int32_t token) const;
  /// Tokens that are not plain first, then by rising length.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  int max_depth() const { return max_depth_; }
  /// Tokens with the same bytes as an earlier one, which alone is in the tries.
  const std::vector<std::pair<int32_t, int32_t>>& copies() const { return copies_; }
  /// The texts of special tokens, longest first.
  const std::vector<std::string>& specials() const { return specials_; }

 private:
  int vocab_;
  std::string text_;
  std::vector<std::pair<uint32_t, uint32_t>> at_;  // [vocab] offset in text_ and length
  std::vector<int32_t> ends_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<int32_t, int32_t>> copies_;
  std::vector<std::string> specials_;
  int max_depth_ = 0;
};

/// Whether a plain token may have this character: none that ends or interrupts a JSON string or a tag.
constexpr bool is_plain(uint32_t c) {
  return c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != 0x7F;
}

}  // namespace fovea::grammar
