#pragma once
// A read-only trie over bytes, built once from all keys: children of a node lie side by side, so that a
// vocabulary of 250,000 tokens takes some 10 MB and a lookup reads one or two cache lines per byte.
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace fovea::text {

class ByteTrie {
 public:
  /// `keys` must be unique; empty keys are skipped. Values are not negative. O(total bytes).
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys);

  /// Calls visit(length, value) for every key that `text` starts with, shortest first.
  template <class Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value >= 0) visit(i + 1, nodes_[node].value);
    }
  }

 private:
  struct Node {
    int32_t value = -1;
    uint32_t first_child = 0;
    uint16_t children = 0;
    uint8_t label = 0;
  };

  // 0, the root, means no child.
  uint32_t child(uint32_t node, uint8_t label) const {
    if (node == 0) return root_children_[label];
    uint32_t low = nodes_[node].first_child;
    uint32_t high = low + nodes_[node].children;
    while (high - low > 4) {
      const uint32_t middle = low + (high - low) / 2;
      (nodes_[middle].label <= label ? low : high) = middle;
    }
    for (; low < high; ++low) {
      if (nodes_[low].label == label) return low;
    }
    return 0;
  }

  std::array<uint32_t, 256> root_children_{};
  std::vector<Node> nodes_;
};

}  // namespace fovea::text
