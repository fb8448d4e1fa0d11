#pragma once
// Keys of the prefix cache for sequences with a LoRA adapter or a salt. Siblings of the tree differ in their
// first page, so that replacing the first token by a number of its own for each pair of space and token keeps
// prefixes apart: of adapters and salts from each other, and from those without any.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace fovea {

class CacheSpaces {
 public:
  static constexpr int32_t kFirst = 1 << 30;  ///< above all token ids

  /// A number above 0 for a pair, the same each time, until it is forgotten; never that of another.
  /// `adapter`: LoraAdapter::number, 0 = none.
  uint64_t space(uint64_t adapter, const std::string& salt) {
    if (spaces_.size() == kMaxSpaces) spaces_.clear();
    const auto [at, is_new] = spaces_.try_emplace({adapter, salt}, next_space_);
    next_space_ += is_new;
    return at->second;
  }

  /// Never the same for different pairs; nullopt when the numbers are used up.
  std::optional<int32_t> key(uint64_t space, int32_t token) {
    const std::pair pair(space, token);
    if (const auto found = keys_.find(pair); found != keys_.end()) return found->second;
    if (next_ == INT32_MAX) return std::nullopt;
    // What is cached under forgotten numbers is not found again, and will be evicted.
    if (keys_.size() == kMaxPairs) keys_.clear();
    return keys_.emplace(pair, next_++).first->second;
  }

 private:
  static constexpr size_t kMaxPairs = 1 << 20, kMaxSpaces = 1 << 16;

  std::map<std::pair<uint64_t, std::string>, uint64_t> spaces_;
  std::map<std::pair<uint64_t, int32_t>, int32_t> keys_;
  uint64_t next_space_ = 1;
  int32_t next_ = kFirst;
};

}  // namespace fovea
