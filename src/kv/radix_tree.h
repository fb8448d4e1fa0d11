#pragma once
// The prefix cache: a radix tree over token ids whose edges are whole pages. A node holds the tokens of its
// edge and the pages with their keys and values; siblings differ in their first page. Lookups compare tokens,
// not hashes. A sequence locks the path to the last page that it uses; unlocked nodes can be evicted, least
// recently used leaves first. Not thread-safe.
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

  /// A locked path: `pages` hold the first pages.size() * page_size tokens of the query.
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

  /// Stores `tokens` (whole pages); `pages` hold the keys and values of their last pages.size() pages. The
  /// tree takes ownership of pages that it did not have. Where it already holds the tokens in another page,
  /// the caller's page is released and replaced in `pages` by the tree's. Returns the end of the path, locked
  /// for the caller; null, and stores nothing, when the tree lacks one of the tokens before `pages`.
  Node* insert(std::span<const int32_t> tokens, std::span<int32_t> pages);

  /// Undoes one match() or insert().
  void unlock(Node* node);

  /// Evicts up to `count` unlocked pages, least recently used leaves first and from their ends, so that what
  /// remains is still a prefix. Returns how many. O(log leaves) for each leaf touched.
  int64_t evict(int64_t count);

  /// Evicts the cached pages of `tokens` from number `first` on, as far as no longer path is cached behind
  /// them and none is locked. Returns how many.
  int64_t forget(std::span<const int32_t> tokens, size_t first);

  int64_t pages() const { return pages_; }                      ///< owned by the tree
  int64_t evictable_pages() const { return pages_ - locked_; }  ///< of those, not locked

  /// A path from the root to a leaf.
  struct Path {
    int64_t tokens = 0;
    bool locked = false;  ///< whether the leaf is locked
  };
  struct Overview {
    int64_t nodes = 0;          ///< without the root
    bool complete = true;       ///< false: the tree has more nodes than were visited
    std::vector<Path> longest;  ///< longest first
  };
  /// Visits up to `max_nodes` nodes from the root down; returns the `max_paths` longest paths.
  Overview overview(size_t max_nodes, size_t max_paths) const;

  /// Checks structure, counters, locks and ownership, given the `locks` that sequences hold. For idle times
  /// and tests.
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
  /// Follows `tokens` as far as they match, splitting the last node where they diverge.
  Walk walk(std::span<const int32_t> tokens);
  std::span<const int32_t> first_page(const Node& node) const;
  /// Splits `node` after `pages` pages: the upper part is a new node, `node` becomes the lower part.
  Node* split(Node* node, size_t pages);
  /// Appends pages and their tokens to `node`: in place when it is an unlocked leaf, else as a child. Returns
  /// the node that holds them.
  Node* append(Node* node, std::span<const int32_t> tokens, std::span<const int32_t> pages);
  int64_t shrink(Node* leaf, size_t keep);
  void lock(Node* node);
  void set_evictable(Node* node);
  void clear_evictable(Node* node);

  size_t page_size_;
  PagePool& pool_;
  std::unique_ptr<Node> root_;
  std::set<LruKey> leaves_;  // unlocked leaves by last use; no ties, every use has its own tick
  uint64_t tick_ = 0;
  int64_t pages_ = 0, locked_ = 0;
};

}  // namespace fovea
