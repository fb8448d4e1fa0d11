#pragma once
// Stage 1 of tokenizing: added tokens are cut out of the text before any other stage runs.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"
#include "text/span.h"

namespace fovea::text {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  ///< matches only between characters that are not word characters
  bool lstrip = false;       ///< also consumes white space before it
  bool rstrip = false;       ///< also consumes white space after it
  bool normalized = false;   ///< matched in normalized text, in its normalized form
  bool special = false;
};

/// One entry of "added_tokens"; `path` names it in errors. `id` < 0: the entry's own "id" is read.
Result<AddedToken> parse_added_token(const Json& entry, const std::string& path, int32_t id = -1);

/// Finds the tokens of one set: the leftmost match, and the longest of those that start there.
class AddedTokenFinder {
 public:
  /// Longest searchable content: bounds the work per byte of text.
  static constexpr size_t kMaxBytes = 1024;

  /// Texts must not be empty; a text given twice keeps its first token.
  void add(std::string_view text, const AddedToken& token);
  bool empty() const { return nodes_.size() == 1; }

  struct Section {
    Span span;
    const AddedToken* token;  ///< null: ordinary text
  };
  /// Splits `text` into tokens and the text between them, in order, without empty sections. White space that
  /// a token consumes (lstrip, rstrip) belongs to its section. Special tokens are ordinary text when
  /// `parse_special` is false.
  void split(std::string_view text, bool parse_special, std::vector<Section>& out) const;

 private:
  struct Node {
    const AddedToken* token = nullptr;
  };
  const AddedToken* longest_at(std::string_view text, size_t& length) const;

  // A trie; the child of node n by byte b is children_[n << 8 | b].
  std::vector<Node> nodes_{1};
  std::unordered_map<uint64_t, uint32_t> children_;
  bool starts_[256] = {};
};

}  // namespace fovea::text
