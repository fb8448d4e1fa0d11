#include "grammar/constraint.h"

#include <algorithm>

#include "base/check.h"

namespace fovea::grammar {
namespace {

constexpr uint32_t kMostPlain = 32;  // characters of the longest plain tokens
constexpr size_t kMostStates = 12;   // that plain characters may lead to, one after the other
constexpr size_t kMostMaskBytes = 32 << 20;

/// Well-formed UTF-8 of plain characters: ranges of the bytes (Unicode, table 3-7).
struct Form {
  uint8_t first, last;  // of the lead byte
  int length;
  uint8_t second_first, second_last;
};
constexpr Form kForms[] = {
    {0x20, 0x7E, 1, 0, 0},       {0xC2, 0xDF, 2, 0x80, 0xBF}, {0xE0, 0xE0, 3, 0xA0, 0xBF},
    {0xE1, 0xEC, 3, 0x80, 0xBF}, {0xED, 0xED, 3, 0x80, 0x9F}, {0xEE, 0xEF, 3, 0x80, 0xBF},
    {0xF0, 0xF0, 4, 0x90, 0xBF}, {0xF1, 0xF3, 4, 0x80, 0xBF}, {0xF4, 0xF4, 4, 0x80, 0x8F},
};

}  // namespace

Constraint::Constraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie, size_t most_bytes)
    : trie_(std::move(trie)), automaton_(std::move(grammar), most_bytes) {
  path_.resize(static_cast<size_t>(trie_->max_depth()) + 1);
}

Constraint::Counts Constraint::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Constraint::prepare(Place place) {
  const std::lock_guard lock(mutex_);
  if (place.generation == generation_) (void)mask_of(place.state);
}

bool Constraint::allows(std::string_view text) {
  const std::lock_guard lock(mutex_);
  make_room();
  State state = automaton_.start();
  for (const char c : text) {
    state = automaton_.next(state, static_cast<uint8_t>(c));
    if (state == Automaton::kDead) return false;
  }
  return automaton_.accepts(state);
}

void Constraint::make_room() {
  if (masks_.size() * trie_->mask_words() * sizeof(uint32_t) > kMostMaskBytes) masks_.clear();
  if (!automaton_.full()) return;
  automaton_.reset();
  masks_.clear();
  after_plain_.clear();
  ++generation_;
  ++counts_.resets;
}

/// The states after one plain character, whichever it is; nullopt if some may not follow, or there are many.
std::optional<std::vector<Automaton::State>> Constraint::after_plain(State state) {
  if (const auto known = after_plain_.find(state); known != after_plain_.end())
    return known->second.empty() ? std::nullopt : std::optional(known->second);
  const auto find = [&]() -> std::vector<State> {
    std::vector<State> all;
    const auto step = [&](const std::vector<State>& from, int first, int last) {
      std::vector<State> to;
      for (const State s : from) {
        std::array<bool, 256> seen{};
        for (int b = first; b <= last; ++b) {
          if (b < 0x80 && !is_plain(static_cast<uint32_t>(b))) continue;
          bool& done = seen[automaton_.classes()[static_cast<size_t>(b)]];
          if (done) continue;
          done = true;
          const State next = automaton_.next(s, static_cast<uint8_t>(b));
          if (std::ranges::find(to, next) == to.end()) to.push_back(next);
          if (next == Automaton::kDead || to.size() > kMostStates) return std::vector<State>{};
        }
      }
      return to;
    };
    for (const Form& form : kForms) {
      std::vector<State> at = step({state}, form.first, form.last);
      if (!at.empty() && form.length > 1) at = step(at, form.second_first, form.second_last);
      for (int i = 2; i < form.length && !at.empty(); ++i)
        at = step(at, 0x80, 0xBF);
      if (at.empty()) return {};
      for (const State s : at)
        if (std::ranges::find(all, s) == all.end()) all.push_back(s);
      if (all.size() > kMostStates) return {};
    }
    return all;
  };
  std::vector<State> found = find();
  after_plain_[state] = found;
  return found.empty() ? std::nullopt : std::optional(std::move(found));
}

Constraint::Plain Constraint::plain_after(State state) {
  std::vector<State> level{state};
  Plain plain;
  for (; plain.depth < kMostPlain; ++plain.depth) {
    std::vector<State> next;
    for (const State s : level) {
      const auto after = after_plain(s);
      if (!after) {
        next.clear();
        break;
      }
      for (const State to : *after)
        if (std::ranges::find(next, to) == next.end()) next.push_back(to);
      if (next.size() > 4 * kMostStates) {
        next.clear();
        break;
      }
    }
    if (next.empty()) break;
    std::ranges::sort(next);
    if (next == level) {  // the same states again, for ever
      plain.depth = kMostPlain;
      break;
    }
    level = std::move(next);
  }
  if (plain.depth == kMostPlain) return plain;
  plain.no_more = std::ranges::all_of(level, [&](State s) {
    for (int b = 0x20; b < 256; ++b)
      if ((b >= 0x80 || is_plain(static_cast<uint32_t>(b))) &&
          automaton_.next(s, static_cast<uint8_t>(b)) != Automaton::kDead)
        return false;
    return true;
  });
  return plain;
}

void Constraint::walk(State state, const std::vector<TokenTrie::Node>& nodes, Mask& mask) {
  path_[0] = state;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const State next = automaton_.next(path_[node.depth], node.byte);
    if (next == Automaton::kDead) {
      i = node.after;
      continue;
    }
    path_[size_t{node.depth} + 1] = next;
    if (node.token >= 0) mask[static_cast<size_t>(node.token) / 32] |= 1U << (node.token % 32);
    ++i;
  }
}

std::shared_ptr<const Constraint::Mask> Constraint::mask_of(State state) {
  ++counts_.masks;
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  ++counts_.computed;
  auto mask = std::make_shared<Mask>(trie_->mask_words());
  const Plain plain = plain_after(state);
  for (const TokenTrie::Bucket& bucket : trie_->buckets()) {
    if (bucket.characters == 0 || bucket.characters > plain.depth) {
      if (bucket.characters == 0 || bucket.fewest <= plain.depth || !plain.no_more)
        walk(state, bucket.nodes, *mask);
      continue;
    }
    for (size_t i = 0; i < mask->size(); ++i)
      (*mask)[i] |= bucket.mask[i];
  }
  for (const auto& [first, copy] : trie_->copies())
    if (((*mask)[static_cast<size_t>(first) / 32] >> (first % 32) & 1) != 0)
      (*mask)[static_cast<size_t>(copy) / 32] |= 1U << (copy % 32);
  masks_[state] = mask;
  return mask;
}

Matcher::Matcher(std::shared_ptr<Constraint> constraint) : constraint_(std::move(constraint)) {
  const std::lock_guard lock(constraint_->mutex_);
  generation_ = constraint_->generation_;
  state_ = constraint_->automaton_.start();
}

/// After the constraint has forgotten its states. Called with its mutex held.
void Matcher::find_place() {
  constraint_->make_room();
  if (generation_ == constraint_->generation_) return;
  generation_ = constraint_->generation_;
  Automaton& automaton = constraint_->automaton_;
  state_ = automaton.start();
  size_t at = 0;
  for (Step& step : steps_) {
    step.before = state_;
    for (const size_t end = at + step.bytes; at < end; ++at)
      state_ = automaton.next(state_, static_cast<uint8_t>(text_[at]));
  }
}

void Matcher::fill_mask(std::span<uint32_t> mask) {
  if (ended_) {
    std::ranges::fill(mask, 0);
    return;
  }
  const std::lock_guard lock(constraint_->mutex_);
  find_place();
  const auto found = constraint_->mask_of(state_);
  FOVEA_CHECK(mask.size() == found->size());
  std::ranges::copy(*found, mask.begin());
  if (!constraint_->automaton_.accepts(state_)) return;
  for (const int32_t end : constraint_->trie().ends())
    if (end < constraint_->trie().vocab()) mask[static_cast<size_t>(end) / 32] |= 1U << (end % 32);
}

bool Matcher::complete() {
  const std::lock_guard lock(constraint_->mutex_);
  find_place();
  return ended_ || constraint_->automaton_.accepts(state_);
}

bool Matcher::continues() {
  const std::lock_guard lock(constraint_->mutex_);
  find_place();
  return !ended_ && constraint_->automaton_.continues(state_);
}

bool Matcher::accept_text(std::string_view text) {
  if (ended_) return false;
  const std::lock_guard lock(constraint_->mutex_);
  find_place();
  return step(text);
}

bool Matcher::step(std::string_view bytes) {
  Automaton::State state = state_;
  for (const char c : bytes) {
    state = constraint_->automaton_.next(state, static_cast<uint8_t>(c));
    if (state == Automaton::kDead) return false;
  }
  steps_.push_back({state_, static_cast<uint32_t>(bytes.size())});
  state_ = state;
  text_ += bytes;
  return true;
}

bool Matcher::accept(int32_t token) {
  if (ended_) return false;
  const std::lock_guard lock(constraint_->mutex_);
  find_place();
  Automaton& automaton = constraint_->automaton_;
  const TokenTrie& trie = constraint_->trie();
  if (trie.is_end(token)) {
    if (!automaton.accepts(state_)) return false;
    steps_.push_back({state_, 0});
    ended_ = true;
    return true;
  }
  const std::string_view bytes = trie.bytes(token);
  return !bytes.empty() && step(bytes);
}

void Matcher::roll_back(size_t count) {
  FOVEA_CHECK(count <= steps_.size());
  if (count == 0) return;
  const std::lock_guard lock(constraint_->mutex_);
  find_place();
  ended_ = false;
  for (; count > 0; --count) {
    state_ = steps_.back().before;
    text_.resize(text_.size() - steps_.back().bytes);
    steps_.pop_back();
  }
}

}  // namespace fovea::grammar
