#include "kv/radix_tree.h"

#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"

namespace fovea {

class RadixTree::Node {
 public:
  std::vector<int32_t> tokens;  // pages.size() * page_size; a child's key points into the child's tokens
  std::vector<int32_t> pages;
  Children children;
  Node* parent = nullptr;
  int64_t locks = 0;  // sequences whose path includes this node
  uint64_t last_use = 0;
};

RadixTree::RadixTree(int page_size, PagePool& pool)
    : page_size_(static_cast<size_t>(page_size)), pool_(pool), root_(std::make_unique<Node>()) {
  FOVEA_CHECK(page_size >= 1);
}

RadixTree::~RadixTree() {
  // Iterative: a chain of single-page nodes is as deep as a sequence is long, too deep for recursion.
  std::vector<std::unique_ptr<Node>> doomed;
  doomed.push_back(std::move(root_));
  while (!doomed.empty()) {
    std::unique_ptr<Node> node = std::move(doomed.back());
    doomed.pop_back();
    for (auto& [key, child] : node->children)
      doomed.push_back(std::move(child));
  }
}

std::span<const int32_t> RadixTree::first_page(const Node& node) const {
  return std::span(node.tokens).first(page_size_);
}

void RadixTree::set_evictable(Node* node) {
  if (node != root_.get() && node->locks == 0 && node->children.empty())
    leaves_.emplace(node->last_use, node);
}

void RadixTree::clear_evictable(Node* node) {
  leaves_.erase({node->last_use, node});
}

RadixTree::Node* RadixTree::split(Node* node, size_t pages) {
  Node* parent = node->parent;
  auto entry = parent->children.extract(first_page(*node));  // its key points into tokens that move
  std::unique_ptr<Node> lower = std::move(entry.mapped());
  clear_evictable(node);

  auto upper = std::make_unique<Node>();
  const auto cut = static_cast<std::ptrdiff_t>(pages);
  const auto token_cut = static_cast<std::ptrdiff_t>(pages * page_size_);
  upper->tokens.assign(node->tokens.begin(), node->tokens.begin() + token_cut);
  upper->pages.assign(node->pages.begin(), node->pages.begin() + cut);
  upper->parent = parent;
  upper->locks = node->locks;
  upper->last_use = ++tick_;
  node->tokens.erase(node->tokens.begin(), node->tokens.begin() + token_cut);
  node->pages.erase(node->pages.begin(), node->pages.begin() + cut);
  node->parent = upper.get();

  upper->children.emplace(first_page(*node), std::move(lower));
  set_evictable(node);
  Node* made = upper.get();
  parent->children.emplace(first_page(*made), std::move(upper));
  return made;
}

RadixTree::Walk RadixTree::walk(std::span<const int32_t> tokens) {
  Node* node = root_.get();
  size_t done = 0;
  while (tokens.size() - done >= page_size_) {
    const auto rest = tokens.subspan(done);
    const auto found = node->children.find(rest.first(page_size_));
    if (found == node->children.end()) break;
    Node* child = found->second.get();
    const size_t limit = std::min(rest.size(), child->tokens.size());
    const auto part =
        std::mismatch(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(limit), child->tokens.begin());
    const size_t pages = static_cast<size_t>(part.first - rest.begin()) / page_size_;
    if (pages < child->pages.size()) {
      node = split(child, pages);
      done += pages * page_size_;
      break;
    }
    node = child;
    done += child->tokens.size();
  }
  return {node, done};
}

void RadixTree::lock(Node* node) {
  for (Node* n = node; n; n = n->parent) {
    clear_evictable(n);
    n->last_use = ++tick_;
    if (n->locks++ == 0) locked_ += static_cast<int64_t>(n->pages.size());
  }
}

void RadixTree::unlock(Node* node) {
  // From the end of the path up, so that a leaf is older than its parent and is evicted first.
  for (Node* n = node; n; n = n->parent) {
    FOVEA_CHECK(n->locks > 0);
    n->last_use = ++tick_;
    if (--n->locks == 0) locked_ -= static_cast<int64_t>(n->pages.size());
    set_evictable(n);
  }
}

RadixTree::Match RadixTree::match(std::span<const int32_t> tokens) {
  const Walk found = walk(tokens);
  Match match{found.node, {}};
  match.pages.resize(found.tokens / page_size_);
  size_t end = match.pages.size();
  for (Node* n = found.node; n != root_.get(); n = n->parent) {
    end -= n->pages.size();
    std::copy(n->pages.begin(), n->pages.end(), match.pages.begin() + static_cast<std::ptrdiff_t>(end));
  }
  lock(found.node);
  return match;
}

RadixTree::Node* RadixTree::insert(std::span<const int32_t> tokens, std::span<int32_t> pages) {
  const size_t total = tokens.size() / page_size_;
  FOVEA_CHECK(tokens.size() == total * page_size_ && pages.size() <= total);
  const size_t first = total - pages.size();
  const Walk found = walk(tokens);
  size_t end = found.tokens / page_size_;
  const size_t known = end;
  if (known < first) return nullptr;
  for (Node* n = found.node; n != root_.get(); n = n->parent) {
    end -= n->pages.size();
    for (size_t i = first > end ? first - end : 0; i < n->pages.size(); ++i) {
      int32_t& page = pages[end + i - first];
      if (page == n->pages[i]) continue;
      pool_.release({&page, 1});
      page = n->pages[i];
    }
  }
  Node* node = found.node;
  if (known < total) node = append(node, tokens.subspan(found.tokens), pages.subspan(known - first));
  lock(node);
  return node;
}

RadixTree::Node* RadixTree::append(Node* node, std::span<const int32_t> tokens,
                                   std::span<const int32_t> pages) {
  pages_ += static_cast<int64_t>(pages.size());
  clear_evictable(node);
  if (node != root_.get() && node->locks == 0 && node->children.empty()) {
    // A sequence with a sliding window stores one page at a time: extend the node instead of building a
    // chain.
    auto entry = node->parent->children.extract(first_page(*node));  // its key points into tokens that move
    node->tokens.insert(node->tokens.end(), tokens.begin(), tokens.end());
    node->pages.insert(node->pages.end(), pages.begin(), pages.end());
    entry.key() = first_page(*node);
    node->parent->children.insert(std::move(entry));
    return node;
  }
  auto leaf = std::make_unique<Node>();
  leaf->tokens.assign(tokens.begin(), tokens.end());
  leaf->pages.assign(pages.begin(), pages.end());
  leaf->parent = node;
  Node* made = leaf.get();
  node->children.emplace(first_page(*made), std::move(leaf));
  return made;
}

int64_t RadixTree::evict(int64_t count) {
  int64_t done = 0;
  while (done < count && !leaves_.empty()) {
    Node* leaf = leaves_.begin()->second;
    const size_t take = std::min(leaf->pages.size(), static_cast<size_t>(count - done));
    done += shrink(leaf, leaf->pages.size() - take);
  }
  return done;
}

int64_t RadixTree::forget(std::span<const int32_t> tokens, size_t first) {
  const Walk found = walk(tokens);
  size_t end = found.tokens / page_size_;
  int64_t done = 0;
  for (Node* node = found.node; end > first && node->locks == 0 && node->children.empty();) {
    Node* parent = node->parent;
    const size_t begin = end - node->pages.size();
    done += shrink(node, first > begin ? first - begin : 0);
    node = parent;
    end = begin;
  }
  return done;
}

/// Releases the pages of an unlocked leaf after the first `keep`; without any, it is gone. Returns how many.
int64_t RadixTree::shrink(Node* leaf, size_t keep) {
  const auto gone = static_cast<int64_t>(leaf->pages.size() - keep);
  pool_.release(std::span(leaf->pages).subspan(keep));
  pages_ -= gone;
  if (keep > 0) {
    leaf->pages.resize(keep);
    leaf->tokens.resize(keep * page_size_);  // shrinks in place: the parent's key stays valid
    return gone;
  }
  clear_evictable(leaf);
  Node* parent = leaf->parent;
  parent->children.erase(parent->children.find(first_page(*leaf)));
  set_evictable(parent);
  return gone;
}

RadixTree::Overview RadixTree::overview(size_t max_nodes, size_t max_paths) const {
  Overview out;
  std::vector<std::pair<const Node*, int64_t>> todo;  // nodes, tokens from the root to their end
  const auto add_children = [&](const Node& node, int64_t tokens) {
    for (const auto& [key, child] : node.children) {
      if (todo.size() == max_nodes) {
        out.complete = false;
        return;
      }
      todo.emplace_back(child.get(), tokens + static_cast<int64_t>(child->tokens.size()));
    }
  };
  add_children(*root_, 0);
  for (size_t i = 0; i < todo.size(); ++i) {
    const auto [node, tokens] = todo[i];
    if (node->children.empty()) out.longest.push_back({tokens, node->locks > 0});
    add_children(*node, tokens);
  }
  out.nodes = static_cast<int64_t>(todo.size());
  std::ranges::stable_sort(out.longest, std::greater(), &Path::tokens);
  out.longest.resize(std::min(out.longest.size(), max_paths));
  return out;
}

bool RadixTree::consistent(std::span<Node* const> locks) const {
  std::unordered_map<const Node*, int64_t> expected;
  for (const Node* node : locks)
    for (; node; node = node->parent)
      ++expected[node];

  std::unordered_set<int32_t> seen;
  int64_t pages = 0, locked = 0;
  size_t leaves = 0, visited_locked = 0;
  std::vector<const Node*> todo{root_.get()};
  while (!todo.empty()) {
    const Node* node = todo.back();
    todo.pop_back();
    const bool is_root = node == root_.get();
    if (node->tokens.size() != node->pages.size() * page_size_) return false;
    if (node->pages.empty() != is_root) return false;
    const auto want = expected.find(node);
    if (node->locks != (want == expected.end() ? 0 : want->second)) return false;
    if (want != expected.end()) ++visited_locked;
    for (int32_t page : node->pages)
      if (!pool_.taken(page) || !seen.insert(page).second) return false;
    pages += static_cast<int64_t>(node->pages.size());
    if (node->locks > 0) locked += static_cast<int64_t>(node->pages.size());
    const bool evictable = !is_root && node->locks == 0 && node->children.empty();
    if (evictable != leaves_.contains({node->last_use, const_cast<Node*>(node)})) return false;
    leaves += evictable;
    for (const auto& [key, child] : node->children) {
      if (child->parent != node || child->tokens.size() < page_size_) return false;
      if (!std::equal(key.begin(), key.end(), child->tokens.begin())) return false;
      if (key.data() != child->tokens.data() || key.size() != page_size_) return false;
      todo.push_back(child.get());
    }
  }
  return pages == pages_ && locked == locked_ && leaves == leaves_.size() &&
         visited_locked == expected.size();
}

}  // namespace fovea
