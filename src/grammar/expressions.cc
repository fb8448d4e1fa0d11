#include "grammar/expressions.h"

#include <algorithm>
#include <unordered_set>

#include "grammar/hash.h"

namespace fovea::grammar {
namespace {

constexpr size_t kMostSteps = 20'000;      // of can_match(), before it assumes the best
constexpr size_t kMostTests = 20'000'000;  // likewise, of bytes in sets
constexpr int kMostDepth = 1000;           // of common beginnings that are factored out

}  // namespace

size_t Expressions::Hash::operator()(const Key& key) const {
  uint64_t hash = mix(static_cast<uint64_t>(key.kind), key.a);
  hash = mix(mix(hash, key.b), key.least);
  return mix(hash, key.most);
}

Expressions::Expressions(size_t most) : most_(most) {
  add(Kind::nothing, 0, 0, 0, 0, false, false);
  add(Kind::empty, 0, 0, 0, 0, true, false);
  add(Kind::negate, kNoText, 0, 0, 0, true, false);
}

Expr Expressions::add(Kind kind, uint32_t a, uint32_t b, uint32_t least, uint32_t most, bool nullable,
                      bool doubtful) {
  const Key key{kind, a, b, least, most};
  const auto [found, added] = numbers_.try_emplace(key, static_cast<Expr>(nodes_.size()));
  if (!added) return found->second;
  if (nodes_.size() >= most_) {
    overflown_ = true;
    numbers_.erase(found);
    return kNoText;
  }
  nodes_.push_back({kind, nullable, doubtful, a, b, least, most});
  return found->second;
}

void Expressions::shrink(size_t size) {
  if (size >= nodes_.size()) return;
  std::erase_if(numbers_, [&](const auto& entry) { return entry.second >= size; });
  for (auto& [hash, numbers] : list_numbers_)
    std::erase_if(numbers, [&](Expr e) { return e >= size; });
  std::erase_if(can_match_, [&](const auto& entry) { return entry.first >= size; });
  derivatives_.clear();
  nodes_.resize(size);
  uint32_t lists = 0;
  for (const Node& node : nodes_)
    if (node.kind == Kind::either || node.kind == Kind::both) lists = std::max(lists, node.a + node.b);
  lists_.resize(lists);
  overflown_ = false;
}

Expr Expressions::bytes(const ByteSet& set) {
  if (set.none()) return kNoText;
  const auto [found, added] = set_numbers_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (added) sets_.push_back(set);
  return add(Kind::bytes, found->second, 0, 0, 0, false, false);
}

Expr Expressions::byte(uint8_t value) {
  ByteSet set;
  set.set(value);
  return bytes(set);
}

Expr Expressions::range(uint8_t first, uint8_t last) {
  ByteSet set;
  for (int b = first; b <= last; ++b)
    set.set(static_cast<size_t>(b));
  return bytes(set);
}

Expr Expressions::literal(std::string_view text) {
  Expr e = kEmpty;
  for (size_t i = text.size(); i-- > 0;)
    e = concat(byte(static_cast<uint8_t>(text[i])), e);
  return e;
}

Expr Expressions::concat(std::span<const Expr> parts) {
  Expr e = kEmpty;
  for (size_t i = parts.size(); i-- > 0;)
    e = concat(parts[i], e);
  return e;
}

Expr Expressions::concat(Expr a, Expr b) {
  if (a == kNoText || b == kNoText) return kNoText;
  if (a == kEmpty) return b;
  if (b == kEmpty) return a;
  // Chains lean to the right: the first part is never a chain itself.
  std::vector<Expr> heads;
  while (nodes_[a].kind == Kind::concat) {
    heads.push_back(nodes_[a].a);
    a = nodes_[a].b;
  }
  heads.push_back(a);
  for (size_t i = heads.size(); i-- > 0;) {
    const Node x = nodes_[heads[i]], y = nodes_[b];
    b = add(Kind::concat, heads[i], b, 0, 0, x.nullable && y.nullable, x.doubtful || y.doubtful);
  }
  return b;
}

Expr Expressions::add_list(Kind kind, std::vector<Expr>& list) {
  uint64_t hash = static_cast<uint64_t>(kind);
  bool nullable = kind == Kind::both, doubtful = kind == Kind::both;
  for (const Expr e : list) {
    hash = mix(hash, e);
    if (kind == Kind::either)
      nullable |= nodes_[e].nullable;
    else
      nullable &= nodes_[e].nullable;
    doubtful |= nodes_[e].doubtful;
  }
  auto& candidates = list_numbers_[hash];
  for (const Expr e : candidates)
    if (nodes_[e].kind == kind && std::ranges::equal(this->list(nodes_[e]), list)) return e;
  if (nodes_.size() >= most_ || lists_.size() + list.size() > 16 * most_) {
    overflown_ = true;
    return kNoText;
  }
  const auto first = static_cast<uint32_t>(lists_.size());
  lists_.insert(lists_.end(), list.begin(), list.end());
  const auto e = static_cast<Expr>(nodes_.size());
  nodes_.push_back({kind, nullable, doubtful, first, static_cast<uint32_t>(list.size()), 0, 0});
  candidates.push_back(e);
  return e;
}

Expr Expressions::either(std::span<const Expr> parts) {
  std::vector<Expr> all;
  ByteSet set;
  for (const Expr e : parts) {
    if (e == kAnything) return kAnything;
    if (e == kNoText) continue;
    const auto take = [&](Expr part) {
      if (nodes_[part].kind == Kind::bytes)
        set |= sets_[nodes_[part].a];
      else
        all.push_back(part);
    };
    if (nodes_[e].kind == Kind::either)
      for (const Expr part : list(nodes_[e]))
        take(part);
    else
      take(e);
  }
  if (set.any()) all.push_back(bytes(set));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.size() > 1) factor(all);
  if (all.size() > 1 && all.front() == kEmpty &&
      std::any_of(all.begin() + 1, all.end(), [&](Expr e) { return nodes_[e].nullable; }))
    all.erase(all.begin());
  if (all.empty()) return kNoText;
  return all.size() == 1 ? all.front() : add_list(Kind::either, all);
}

/// Alternatives that begin with the same part become one, so that many literals are as fast as few.
void Expressions::factor(std::vector<Expr>& all) {
  if (depth_ >= kMostDepth) return;
  std::unordered_map<Expr, std::vector<Expr>> rests;
  for (const Expr e : all)
    if (nodes_[e].kind == Kind::concat) rests[nodes_[e].a].push_back(nodes_[e].b);
  std::erase_if(rests, [](const auto& entry) { return entry.second.size() < 2; });
  if (rests.empty()) return;
  std::erase_if(all, [&](Expr e) { return nodes_[e].kind == Kind::concat && rests.contains(nodes_[e].a); });
  ++depth_;
  for (auto& [first, tails] : rests)
    all.push_back(concat(first, either(tails)));
  --depth_;
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
}

Expr Expressions::both(std::span<const Expr> parts) {
  std::vector<Expr> all;
  ByteSet set;
  bool has_set = false, has_empty = false;
  for (const Expr e : parts) {
    if (e == kNoText) return kNoText;
    if (e == kAnything) continue;
    const auto take = [&](Expr part) {
      has_empty |= part == kEmpty;
      if (nodes_[part].kind == Kind::bytes) {
        set = has_set ? set & sets_[nodes_[part].a] : sets_[nodes_[part].a];
        has_set = true;
      } else {
        all.push_back(part);
      }
    };
    if (nodes_[e].kind == Kind::both)
      for (const Expr part : list(nodes_[e]))
        take(part);
    else
      take(e);
  }
  if (has_set && (set.none() || has_empty)) return kNoText;
  if (has_set) all.push_back(bytes(set));
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.empty()) return kAnything;
  if (has_empty)
    return std::ranges::all_of(all, [&](Expr e) { return nodes_[e].nullable; }) ? kEmpty : kNoText;
  for (const Expr e : all)
    if (nodes_[e].kind == Kind::negate && std::ranges::binary_search(all, nodes_[e].a)) return kNoText;
  return all.size() == 1 ? all.front() : add_list(Kind::both, all);
}

Expr Expressions::negate(Expr e) {
  if (nodes_[e].kind == Kind::negate) return nodes_[e].a;
  return add(Kind::negate, e, 0, 0, 0, !nodes_[e].nullable, true);
}

Expr Expressions::repeat(Expr e, uint32_t least, uint32_t most) {
  if (most == 0 || e == kEmpty) return kEmpty;
  if (e == kNoText) return least == 0 ? kEmpty : kNoText;
  if (least == 1 && most == 1) return e;
  if (e == kAnything) return kAnything;
  const Node node = nodes_[e];
  if (node.nullable) least = 0;
  if (least == 0 && most == 1 && node.nullable) return e;
  if (node.kind == Kind::repeat && node.least <= 1 && node.most == kNoLimit)
    return repeat(node.a, least == 0 ? 0 : node.least, kNoLimit);
  return add(Kind::repeat, e, 0, least, most, least == 0, node.doubtful);
}

Expr Expressions::multiple(uint32_t divisor, uint32_t places) {
  return add_multiple(divisor, places, 0, 0, false);
}

/// `seen`: 0 = no point yet, else 1 + the digits behind it. `digits`: a digit stands right before.
Expr Expressions::add_multiple(uint32_t divisor, uint32_t places, uint32_t remainder, uint32_t seen,
                               bool digits) {
  uint64_t rest = remainder;
  for (uint32_t i = seen > 0 ? seen - 1 : 0; i < places; ++i)
    rest = rest * 10 % divisor;
  const bool nullable = digits && rest == 0;
  return add(Kind::multiple, divisor, places, remainder, seen * 2 + (digits ? 1 : 0), nullable, true);
}

Expr Expressions::derive_multiple(const Node& node, uint8_t byte) {
  const uint32_t divisor = node.a, places = node.b, seen = node.most / 2;
  const bool digits = node.most % 2 == 1;
  if (byte == '.') return digits && seen == 0 ? add_multiple(divisor, places, node.least, 1, false) : kNoText;
  if (byte < '0' || byte > '9') return kNoText;
  if (seen == places + 1)  // further digits must be 0
    return byte == '0' ? add_multiple(divisor, places, node.least, seen, true) : kNoText;
  const auto rest = static_cast<uint32_t>((uint64_t{node.least} * 10 + (byte - '0')) % divisor);
  return add_multiple(divisor, places, rest, seen == 0 ? 0 : seen + 1, true);
}

Expr Expressions::derivative(Expr e, uint8_t byte) {
  const Node& node = nodes_[e];
  switch (node.kind) {
    case Kind::nothing:
    case Kind::empty: return kNoText;
    case Kind::bytes: return sets_[node.a].test(byte) ? kEmpty : kNoText;
    default: break;
  }
  if (e == kAnything) return kAnything;
  const uint64_t key = uint64_t{e} << 8 | byte;
  if (const auto found = derivatives_.find(key); found != derivatives_.end()) return found->second;
  if (overflown_) return kNoText;
  const Expr result = derive(e, byte);
  derivatives_[key] = result;
  return result;
}

Expr Expressions::derive(Expr e, uint8_t byte) {
  const Node node = nodes_[e];  // a copy: nodes_ grows below
  switch (node.kind) {
    case Kind::concat: {
      std::vector<Expr> parts;
      Expr rest = e;
      for (bool empty = true; empty && nodes_[rest].kind == Kind::concat;) {
        const Node at = nodes_[rest];
        parts.push_back(concat(derivative(at.a, byte), at.b));
        empty = nodes_[at.a].nullable;
        rest = empty ? at.b : kNoText;
      }
      if (rest != kNoText) parts.push_back(derivative(rest, byte));
      return either(parts);
    }
    case Kind::either:
    case Kind::both: {
      std::vector<Expr> parts(lists_.begin() + node.a, lists_.begin() + node.a + node.b);
      for (Expr& part : parts) {
        part = derivative(part, byte);
        if (node.kind == Kind::both && part == kNoText) return kNoText;
      }
      return node.kind == Kind::either ? either(parts) : both(parts);
    }
    case Kind::negate: return negate(derivative(node.a, byte));
    case Kind::repeat:
      return concat(derivative(node.a, byte), repeat(node.a, node.least > 0 ? node.least - 1 : 0,
                                                     node.most == kNoLimit ? kNoLimit : node.most - 1));
    case Kind::multiple: return derive_multiple(node, byte);
    default: return kNoText;
  }
}

/// The sets of bytes that the derivative of `e` may depend on.
void Expressions::collect_sets(Expr e, std::vector<ByteSet>& sets) const {
  for (; nodes_[e].kind == Kind::concat; e = nodes_[e].b) {
    collect_sets(nodes_[e].a, sets);
    if (!nodes_[nodes_[e].a].nullable) return;
  }
  const Node& node = nodes_[e];
  switch (node.kind) {
    case Kind::bytes: sets.push_back(sets_[node.a]); return;
    case Kind::either:
    case Kind::both:
      for (const Expr part : list(node))
        collect_sets(part, sets);
      return;
    case Kind::negate:
    case Kind::repeat: collect_sets(node.a, sets); return;
    case Kind::multiple:
      for (const char c : std::string_view("0123456789.")) {
        ByteSet set;
        set.set(static_cast<uint8_t>(c));
        sets.push_back(set);
      }
      return;
    default: return;
  }
}

/// One byte of each class that the derivative of `e` distinguishes.
std::vector<uint8_t> Expressions::representatives(Expr e, size_t& tests) const {
  std::vector<ByteSet> sets;
  collect_sets(e, sets);
  tests += 256 * sets.size();
  std::vector<uint8_t> result;
  std::unordered_set<uint64_t> seen;
  for (int b = 0; b < 256; ++b) {
    uint64_t hash = 1;
    for (const ByteSet& set : sets)
      hash = mix(hash, set.test(static_cast<size_t>(b)) ? 3 : 2);
    if (seen.insert(hash).second) result.push_back(static_cast<uint8_t>(b));
  }
  return result;
}

bool Expressions::can_match(Expr e) {
  if (!nodes_[e].doubtful || nodes_[e].nullable) return e != kNoText;
  if (const auto known = can_match_.find(e); known != can_match_.end()) return known->second;
  // Depth first, until a nullable expression or one that is known to match.
  std::vector<Expr> open{e}, visited;
  std::unordered_set<Expr> seen{e};
  size_t tests = 0;
  while (!open.empty()) {
    const Expr at = open.back();
    open.pop_back();
    visited.push_back(at);
    if (visited.size() > kMostSteps || tests > kMostTests || overflown_) return can_match_[e] = true;
    const std::vector<uint8_t> bytes = representatives(at, tests);
    for (size_t i = bytes.size(); i-- > 0;) {
      const Expr next = derivative(at, bytes[i]);
      if (next == kNoText || !seen.insert(next).second) continue;
      const auto known = can_match_.find(next);
      if (nodes_[next].nullable || !nodes_[next].doubtful || (known != can_match_.end() && known->second)) {
        can_match_[e] = true;
        can_match_[at] = true;
        return true;
      }
      if (known == can_match_.end()) open.push_back(next);
    }
  }
  for (const Expr none : visited)
    can_match_[none] = false;
  return false;
}

bool Expressions::matches(Expr e, std::string_view text) {
  for (const char c : text)
    e = derivative(e, static_cast<uint8_t>(c));
  return nodes_[e].nullable;
}

int Expressions::byte_classes(std::array<uint8_t, 256>& class_of) const {
  bool has_multiple = false;
  for (const Node& node : nodes_)
    has_multiple |= node.kind == Kind::multiple;
  class_of.fill(0);
  int classes = 1;
  const auto split = [&](const ByteSet& set) {
    std::array<int, 256> moved;
    moved.fill(-1);
    std::array<bool, 256> stays{};
    for (size_t b = 0; b < 256; ++b)
      if (!set.test(b)) stays[class_of[b]] = true;
    for (size_t b = 0; b < 256; ++b) {
      if (!set.test(b) || !stays[class_of[b]]) continue;
      int& to = moved[class_of[b]];
      if (to < 0) to = classes++;
      class_of[b] = static_cast<uint8_t>(to);
    }
  };
  for (const ByteSet& set : sets_)
    split(set);
  for (const char c : std::string_view(has_multiple ? "0123456789." : "")) {
    ByteSet set;
    set.set(static_cast<uint8_t>(c));
    split(set);
  }
  return classes;
}

}  // namespace fovea::grammar
