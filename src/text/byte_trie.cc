#include "text/byte_trie.h"

#include <algorithm>

namespace fovea::text {

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> keys) {
  std::sort(keys.begin(), keys.end());
  // The keys below a node are neighbours in sorted order; `depth` is the length of the node's own spelling.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, keys.size(), 0}};
  nodes_.emplace_back();
  // Breadth first: node i's children are appended together while node i is visited.
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && keys[begin].first.size() == depth) {
      if (depth > 0) nodes_[node].value = keys[begin].second;
      ++begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char label = keys[begin].first[depth];
      size_t next = begin + 1;
      while (next < end && keys[next].first[depth] == label)
        ++next;
      if (node == 0) root_children_[static_cast<uint8_t>(label)] = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.label = static_cast<uint8_t>(label)});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[node].children;
      begin = next;
    }
  }
}

}  // namespace fovea::text
