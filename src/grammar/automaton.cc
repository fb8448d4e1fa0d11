#include "grammar/automaton.h"

#include <algorithm>
#include <unordered_set>

#include "grammar/hash.h"

namespace fovea::grammar {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

Automaton::Automaton(Grammar grammar, size_t most_bytes)
    : grammar_(std::move(grammar)), most_bytes_(most_bytes) {
  classes_ = static_cast<size_t>(grammar_.expressions().byte_classes(class_of_));
  representatives_.resize(classes_);
  for (int b = 255; b >= 0; --b)
    representatives_[class_of_[static_cast<size_t>(b)]] = static_cast<uint8_t>(b);
  first_expressions_ = grammar_.expressions().size();
  grammar_.expressions().set_limit(first_expressions_ + 1'000'000);
  begin();
}

void Automaton::reset() {
  grammar_.expressions().shrink(first_expressions_);
  sets_.clear();
  lexers_.clear();
  lexer_next_.clear();
  states_.clear();
  threads_.clear();
  next_.clear();
  set_numbers_.clear();
  lexer_numbers_.clear();
  state_numbers_.clear();
  set_bytes_ = 0;
  begin();
}

void Automaton::begin() {
  predicted_.assign(grammar_.names(), kNone);
  add_lexer({});  // 0: nothing may follow
  std::vector<Thread> threads;
  add_state(threads, false);  // kDead
  // The first set has no kernel: it predicts the grammar's start.
  std::vector<Item> kernel;
  const SetId first = add_set(kernel);
  threads = {{first, sets_[first].lexer}};
  start_ = add_state(threads, sets_[first].accepts);
}

size_t Automaton::bytes() const {
  return set_bytes_ + (next_.size() + lexer_next_.size()) * sizeof(State) + threads_.size() * sizeof(Thread) +
         states_.size() * 64 + lexers_.size() * 128 + grammar_.expressions_size() * 128;
}

Automaton::SetId Automaton::add_set(std::vector<Item>& kernel) {
  std::ranges::sort(kernel);
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  uint64_t hash = kernel.size();
  for (const Item& item : kernel)
    hash = mix(mix(hash, item.place), item.origin);
  const auto [first, last] = set_numbers_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (sets_[at->second].kernel == kernel) return at->second;
  const auto id = static_cast<SetId>(sets_.size());
  sets_.emplace_back();
  sets_.back().kernel = kernel;
  close(id);
  set_numbers_.emplace(hash, id);
  const Set& set = sets_[id];
  set_bytes_ += 160 + (set.kernel.size() + set.names.size() + set.terminals.size()) * sizeof(Item);
  return id;
}

/// Predicts and completes. A name that may be empty is skipped where it is predicted (Aycock and Horspool),
/// so that no item completes in the set in which it began.
void Automaton::close(SetId id) {
  std::vector<Item> open;
  std::unordered_set<uint64_t> seen;
  std::vector<Item> names, terminals;
  bool accepts = false;
  const auto add = [&](Item item) {
    if (seen.insert(uint64_t{item.place} << 32 | item.origin).second) open.push_back(item);
  };
  std::unordered_set<uint64_t> completed;
  const auto predict = [&](uint32_t name) {
    if (predicted_[name] == id) return;
    predicted_[name] = id;
    for (const Grammar::Place place : grammar_.rules_of(name))
      add({place, id});
  };
  for (const Item& item : sets_[id].kernel)
    add(item);
  if (sets_[id].kernel.empty()) {
    predict(grammar_.start());
    accepts = grammar_.may_be_empty(grammar_.start());
  }
  while (!open.empty()) {
    const Item item = open.back();
    open.pop_back();
    const Grammar::Item& at = grammar_.item(item.place);
    switch (at.what) {
      case Grammar::What::terminal: terminals.push_back(item); break;
      case Grammar::What::name:
        names.push_back(item);
        predict(at.index);
        if (grammar_.may_be_empty(at.index)) add({item.place + 1, item.origin});
        break;
      case Grammar::What::end: {
        if (item.origin == id) break;
        if (!completed.insert(uint64_t{at.index} << 32 | item.origin).second) break;
        // The first set is 0.
        if (item.origin == 0 && at.index == grammar_.start()) accepts = true;
        const Set& origin = sets_[item.origin];
        const auto range = std::ranges::equal_range(origin.names, at.index, {}, [&](const Item& waiting) {
          return grammar_.item(waiting.place).index;
        });
        for (const Item& waiting : range)
          add({waiting.place + 1, waiting.origin});
        break;
      }
    }
  }
  const auto by_index = [&](const Item& a, const Item& b) {
    return std::pair(grammar_.item(a.place).index, a) < std::pair(grammar_.item(b.place).index, b);
  };
  std::ranges::sort(names, by_index);
  std::ranges::sort(terminals, by_index);
  Lexer lexer;
  for (const Item& item : terminals) {
    const uint32_t terminal = grammar_.item(item.place).index;
    if (lexer.terminals.empty() || lexer.terminals.back().first != terminal)
      lexer.terminals.emplace_back(terminal, grammar_.terminals()[terminal]);
  }
  Set& set = sets_[id];
  set.names = std::move(names);
  set.terminals = std::move(terminals);
  set.accepts = accepts;
  set.lexer = add_lexer(std::move(lexer));
}

Automaton::LexerState Automaton::add_lexer(Lexer lexer) {
  uint64_t hash = lexer.terminals.size();
  for (const auto& [terminal, rest] : lexer.terminals)
    hash = mix(mix(hash, terminal), rest);
  for (const uint32_t terminal : lexer.ended)
    hash = mix(hash, terminal);
  const auto [first, last] = lexer_numbers_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (lexers_[at->second].terminals == lexer.terminals && lexers_[at->second].ended == lexer.ended)
      return at->second;
  const auto id = static_cast<LexerState>(lexers_.size());
  set_bytes_ += lexer.terminals.size() * 8 + lexer.ended.size() * 4;
  lexers_.push_back(std::move(lexer));
  lexer_next_.resize(lexers_.size() * classes_, kUnknown);
  lexer_numbers_.emplace(hash, id);
  return id;
}

Automaton::LexerState Automaton::lex(LexerState from, uint8_t byte) {
  const size_t at = size_t{from} * classes_ + class_of_[byte];
  if (lexer_next_[at] != kUnknown) return lexer_next_[at];
  Expressions& x = grammar_.expressions();
  Lexer next;
  for (const auto& [terminal, rest] : lexers_[from].terminals) {
    const Expr e = x.derivative(rest, byte);
    if (!x.can_match(e)) continue;
    if (x.nullable(e)) next.ended.push_back(terminal);
    if (e != Expressions::kEmpty) next.terminals.emplace_back(terminal, e);
  }
  const LexerState id = add_lexer(std::move(next));
  lexer_next_[at] = id;
  return id;
}

Automaton::State Automaton::add_state(std::vector<Thread>& threads, bool accepts) {
  std::ranges::sort(threads);
  uint64_t hash = accepts ? 1 : 2;
  for (const Thread& thread : threads)
    hash = mix(mix(hash, thread.set), thread.lexer);
  const auto [first, last] = state_numbers_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const StateInfo& info = states_[at->second];
    if (info.accepts == accepts && info.count == threads.size() &&
        std::equal(threads.begin(), threads.end(), threads_.begin() + info.first))
      return at->second;
  }
  const auto id = static_cast<State>(states_.size());
  states_.push_back({static_cast<uint32_t>(threads_.size()), static_cast<uint32_t>(threads.size()), accepts});
  threads_.insert(threads_.end(), threads.begin(), threads.end());
  next_.resize(states_.size() * classes_, kUnknown);
  state_numbers_.emplace(hash, id);
  return id;
}

Automaton::State Automaton::compute(State state, uint8_t byte) {
  std::vector<Thread> threads;
  std::vector<Item> kernel;
  const StateInfo info = states_[state];
  for (uint32_t i = info.first; i < info.first + info.count; ++i) {
    const Thread thread = threads_[i];
    const LexerState lexer = lex(thread.lexer, byte);
    for (const uint32_t terminal : lexers_[lexer].ended) {
      const auto range =
          std::ranges::equal_range(sets_[thread.set].terminals, terminal, {},
                                   [&](const Item& item) { return grammar_.item(item.place).index; });
      for (const Item& item : range)
        kernel.push_back({item.place + 1, item.origin});
    }
    if (!lexers_[lexer].terminals.empty()) threads.push_back({thread.set, lexer});
  }
  bool accepts = false;
  if (!kernel.empty()) {
    const SetId set = add_set(kernel);
    accepts = sets_[set].accepts;
    if (!lexers_[sets_[set].lexer].terminals.empty()) threads.push_back({set, sets_[set].lexer});
  }
  const State next = threads.empty() && !accepts ? kDead : add_state(threads, accepts);
  next_[size_t{state} * classes_ + class_of_[byte]] = next;
  return next;
}

}  // namespace fovea::grammar
