#pragma once
// The prefix cache: a radix tree over token ids whose edges are whole pages. A node holds the tokens of its
// edge and the pages with their keys and values; siblings differ in their first page. Tokens are compared,
// never hashes of them. A sequence locks the path to the last page that it uses; what nobody locks can be
// evicted, least recently used leaves first. One thread owns the tree.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kv/page_pool.h"

namespace fovea {

class RadixTree {
 public:
  class Node;

  /// A locked path: `pages` hold the first pages.size() * page_size tokens of what was asked.
  struct Match {
    Node* node = nullptr;
    std::vector<int32_t> pages;
  };

  /// Evicted and duplicate pages go back to `pool`, which must outlive the tree.
  RadixTree(int page_size, PagePool& pool);
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  /// The longest cached prefix of `tokens` in whole pages, locked for the caller: unlock(match.node) later.
  Match match(std::span<const int32_t> tokens);

  /// Stores `tokens` (whole pages), the keys and values of whose last pages.size() pages are in `pages`.
  /// Every page that the tree did not have becomes the tree's; where it had the tokens in another page, the
  /// caller's page is released and `pages` is changed to name the tree's. Returns the path's end, locked for
  /// the caller; null, and nothing stored, when the tree lacks one of the tokens before `pages`.
  Node* insert(std::span<const int32_t> tokens, std::span<int32_t> pages);

  /// Undoes one match() or insert().
  void unlock(Node* node);

  /// Frees up to `count` pages that nobody locks, the least recently used first and from their ends, so that
  /// what remains is still a prefix. Returns how many. O(log leaves) for each leaf touched.
  int64_t evict(int64_t count);

  int64_t pages() const { return pages_; }                      ///< owned by the tree
  int64_t evictable_pages() const { return pages_ - locked_; }  ///< of those, locked by nobody

  /// A path from the root to a leaf.
  struct Path {
    int64_t tokens = 0;
    bool locked = false;  ///< the leaf is
  };
  struct Overview {
    int64_t nodes = 0;          ///< without the root
    bool complete = true;       ///< false: the tree has more nodes than were looked at
    std::vector<Path> longest;  ///< longest first
  };
  /// Looks at up to `max_nodes` nodes, from the root down, for the `max_paths` longest paths.
  Overview overview(size_t max_nodes, size_t max_paths) const;

  /// Whether structure, counters, locks and ownership agree, with `locks` held by sequences. For idle
  /// moments and tests.
  bool consistent(std::span<Node* const> locks) const;

 private:
  struct Less {
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
    }
  };
  using Children = std::map<std::span<const int32_t>, std::unique_ptr<Node>, Less>;
  using LruKey = std::pair<uint64_t, Node*>;

  struct Walk {
    Node* node;
    size_t tokens;  // matched
  };
  /// Follows `tokens` as far as the tree goes, splitting the last node where they part.
  Walk walk(std::span<const int32_t> tokens);
  std::span<const int32_t> first_page(const Node& node) const;
  /// Cuts `node` after `pages` pages; the upper half is a new node, `node` keeps its identity as the lower.
  Node* split(Node* node, size_t pages);
  /// Puts pages and their tokens behind `node`: into it when it is an unlocked leaf, else as a child. Returns
  /// where they are.
  Node* append(Node* node, std::span<const int32_t> tokens, std::span<const int32_t> pages);
  void lock(Node* node);
  void set_evictable(Node* node);
  void clear_evictable(Node* node);

  size_t page_size_;
  PagePool& pool_;
  std::unique_ptr<Node> root_;
  std::set<LruKey> leaves_;  // unlocked ones by last use; ties can't happen, every use has its own tick
  uint64_t tick_ = 0;
  int64_t pages_ = 0, locked_ = 0;
};

}  // namespace fovea
