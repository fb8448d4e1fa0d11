#pragma once
// Token spellings and their ids, both ways.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"

namespace fovea::text {

class Vocabulary {
 public:
  /// Ids above this are refused: the largest real vocabularies have about a million entries, and the id table
  /// grows with the largest id.
  static constexpr int64_t kMaxId = (1 << 22) - 1;

  /// From {"token": id, ...}. Ids may have gaps; two tokens with one id, or one token twice, are errors.
  static Result<Vocabulary> parse(const Json& vocab, std::string_view path);

  struct Entry {
    std::string_view token;
    int32_t id;  ///< 0 to kMaxId
  };
  /// From entries, by the same rules.
  static Result<Vocabulary> build(const std::vector<Entry>& entries, std::string_view path);

  std::optional<int32_t> find(std::string_view token) const {
    const auto it = ids_.find(token);
    return it == ids_.end() ? std::nullopt : std::optional<int32_t>(it->second);
  }
  /// Empty where no token has this id.
  std::string_view token(int32_t id) const {
    return has(id) ? tokens_[static_cast<size_t>(id)] : std::string_view();
  }
  bool has(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens_.size() && tokens_[static_cast<size_t>(id)].data();
  }
  /// Length of the longest spelling, in bytes or in characters.
  size_t longest(bool in_characters) const;
  /// One past the largest id.
  int size() const { return static_cast<int>(tokens_.size()); }

  /// Ids of the byte tokens <0x00> to <0xFF>, -1 where the vocabulary has none.
  std::array<int32_t, 256> byte_token_ids() const;

 private:
  std::vector<char> storage_;             // all spellings, one after the other
  std::vector<std::string_view> tokens_;  // by id; data() is null in gaps
  std::unordered_map<std::string_view, int32_t> ids_;
};

/// The byte that a token like <0x0A> spells.
std::optional<uint8_t> byte_of_token(std::string_view token);

/// An integer of `value` in [0, Vocabulary::kMaxId], or an error that names `path`.
Result<int32_t> parse_token_id(const Json& value, const std::string& path);

}  // namespace fovea::text
