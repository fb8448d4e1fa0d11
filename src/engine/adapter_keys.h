#pragma once
// Keys of the prefix cache for sequences with a LoRA adapter. Siblings of the tree differ in their first
// page, so that replacing the first token by a number of its own for each pair of adapter and token keeps the
// prefixes of adapters apart, from each other and from those without one.
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace fovea {

class AdapterKeys {
 public:
  static constexpr int32_t kFirst = 1 << 30;  ///< above all token ids

  /// Never the same for different pairs; nullopt when the numbers are used up.
  std::optional<int32_t> key(uint64_t adapter, int32_t token) {
    const std::pair pair(adapter, token);
    if (const auto found = keys_.find(pair); found != keys_.end()) return found->second;
    if (next_ == INT32_MAX) return std::nullopt;
    // What is cached under forgotten numbers is not found again, and will be evicted.
    if (keys_.size() == kMaxPairs) keys_.clear();
    return keys_.emplace(pair, next_++).first->second;
  }

 private:
  static constexpr size_t kMaxPairs = 1 << 20;

  std::map<std::pair<uint64_t, int32_t>, int32_t> keys_;
  int32_t next_ = kFirst;
};

}  // namespace fovea
