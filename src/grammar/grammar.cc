#include "grammar/grammar.h"

#include <algorithm>

namespace fovea::grammar {

Symbol Grammar::add_name() {
  rules_.emplace_back();
  ++symbols_;
  return {static_cast<uint32_t>(rules_.size() - 1), false};
}

void Grammar::add_rule(Symbol name, std::vector<Symbol> symbols) {
  symbols_ += symbols.size() + 1;
  if (symbols_ > limits_.symbols) return;
  rules_[name.index].push_back(std::move(symbols));
}

Symbol Grammar::terminal(Expr e) {
  if (const auto found = terminal_of_.find(e); found != terminal_of_.end()) return found->second;
  Symbol symbol;
  if (e == Expressions::kEmpty || expressions_.nullable(e)) {
    symbol = add_name();
    add_rule(symbol, {});
    ByteSet any;
    any.set();
    const Expr some = expressions_.concat(expressions_.bytes(any), Expressions::kAnything);
    const Expr rest = e == Expressions::kEmpty ? Expressions::kNoText : expressions_.both(e, some);
    if (expressions_.can_match(rest)) add_rule(symbol, {terminal(rest)});
  } else {
    symbol = {static_cast<uint32_t>(terminals_.size()), true};
    terminals_.push_back(e);
  }
  terminal_of_[e] = symbol;
  return symbol;
}

Symbol Grammar::sequence(std::vector<Symbol> symbols) {
  if (symbols.size() == 1) return symbols[0];
  const Symbol name = add_name();
  add_rule(name, std::move(symbols));
  return name;
}

Symbol Grammar::choice(const std::vector<Symbol>& symbols) {
  if (symbols.size() == 1) return symbols[0];
  const Symbol name = add_name();
  for (const Symbol symbol : symbols)
    add_rule(name, {symbol});
  return name;
}

Symbol Grammar::optional(Symbol symbol) {
  const Symbol name = add_name();
  add_rule(name, {});
  add_rule(name, {symbol});
  return name;
}

/// 0 to `most` times.
Symbol Grammar::repeat_up_to(Symbol symbol, uint32_t most) {
  const Symbol name = add_name();
  if (most == kNoLimit) {  // left recursion: the parser's state stays the same
    add_rule(name, {});
    add_rule(name, {name, symbol});
    return name;
  }
  Symbol rest = name;
  add_rule(rest, {});
  for (uint32_t i = 0; i < most && !full(); ++i) {
    const Symbol longer = add_name();
    add_rule(longer, {});
    add_rule(longer, {symbol, rest});
    rest = longer;
  }
  return rest;
}

Symbol Grammar::repeat(Symbol symbol, uint32_t least, uint32_t most, const Symbol* separator) {
  const Symbol following = separator ? sequence({*separator, symbol}) : symbol;
  const auto limited = [&](uint32_t min, uint32_t max) {
    std::vector<Symbol> parts;
    for (uint32_t i = 0; i < min && !full(); ++i)
      parts.push_back(parts.empty() ? symbol : following);
    if (separator && min == 0) parts.push_back(symbol);  // only with max > 0, see below
    const uint32_t there = static_cast<uint32_t>(parts.size());
    if (max == kNoLimit)
      parts.push_back(repeat_up_to(following, kNoLimit));
    else if (max > there)
      parts.push_back(repeat_up_to(following, max - there));
    return sequence(std::move(parts));
  };
  if (most == 0) return sequence(std::vector<Symbol>{});
  if (least > 0 || !separator) return limited(least, most);
  return optional(limited(0, most));
}

std::vector<bool> Grammar::productive() const {
  std::vector<bool> yes(rules_.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t name = 0; name < rules_.size(); ++name) {
      if (yes[name]) continue;
      yes[name] = std::ranges::any_of(rules_[name], [&](const auto& rule) {
        return std::ranges::all_of(rule, [&](Symbol s) {
          return s.terminal ? terminals_[s.index] != Expressions::kNoText : yes[s.index];
        });
      });
      changed |= yes[name];
    }
  }
  return yes;
}

void Grammar::find_empty() {
  empty_.assign(rules_.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t name = 0; name < rules_.size(); ++name) {
      if (empty_[name]) continue;
      empty_[name] = std::ranges::any_of(rules_[name], [&](const auto& rule) {
        return std::ranges::all_of(rule, [&](Symbol s) { return !s.terminal && empty_[s.index]; });
      });
      changed |= empty_[name];
    }
  }
}

Status Grammar::finish() {
  for (Expr& e : terminals_)
    if (!expressions_.can_match(e)) e = Expressions::kNoText;
  if (full())
    return invalid("the constraint is too large: it needs more than " + std::to_string(limits_.symbols) +
                   " symbols or " + std::to_string(limits_.expressions) +
                   " nodes of expressions; shorten it, or lower the numbers of its repeats");
  if (start_.terminal) start_ = choice({start_, start_});
  const std::vector<bool> useful = productive();
  if (!useful[start_.index]) return invalid("the constraint allows no text at all; loosen it");
  for (auto& rules : rules_)
    std::erase_if(rules, [&](const auto& rule) {
      return std::ranges::any_of(rule, [&](Symbol s) {
        return s.terminal ? terminals_[s.index] == Expressions::kNoText : !useful[s.index];
      });
    });
  find_empty();
  first_.resize(rules_.size());
  for (size_t name = 0; name < rules_.size(); ++name)
    for (const auto& rule : rules_[name]) {
      first_[name].push_back(static_cast<Place>(items_.size()));
      for (const Symbol s : rule)
        items_.push_back({s.terminal ? What::terminal : What::name, s.index});
      items_.push_back({What::end, static_cast<uint32_t>(name)});
    }
  rules_.clear();
  return {};
}

}  // namespace fovea::grammar
