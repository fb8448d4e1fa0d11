#pragma once
// A context-free grammar over terminals that are expressions over bytes: what every kind of constraint is
// compiled to. Any text that some derivation gives is in the language: terminals are not matched greedily.
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "fovea/result.h"
#include "grammar/expressions.h"

namespace fovea::grammar {

/// Limits of a compiled constraint; beyond them compilation is refused with a message.
struct Limits {
  size_t expressions = 200'000;  ///< nodes of all terminals
  size_t symbols = 100'000;      ///< of all rules together
};

/// A symbol of a rule: a terminal or a rule's name.
struct Symbol {
  uint32_t index = 0;
  bool terminal = false;
};

class Grammar {
 public:
  explicit Grammar(const Limits& limits = {}) : limits_(limits), expressions_(limits.expressions) {}

  Expressions& expressions() { return expressions_; }
  size_t expressions_size() const { return expressions_.size(); }
  bool overflown() const { return expressions_.overflown(); }

  /// A name without rules yet.
  Symbol add_name();
  void add_rule(Symbol name, std::vector<Symbol> symbols);
  /// What matches `e`; one symbol for equal expressions. The empty text, if `e` matches it, is a rule.
  Symbol terminal(Expr e);

  // Names with rules for common forms.
  Symbol sequence(std::vector<Symbol> symbols);
  Symbol choice(const std::vector<Symbol>& symbols);
  Symbol optional(Symbol symbol);
  /// `least` to `most` times with `separator` between, if there is one.
  Symbol repeat(Symbol symbol, uint32_t least, uint32_t most, const Symbol* separator = nullptr);

  void set_start(Symbol start) { start_ = start; }

  /// Ok, or why the grammar can't be used: it is too large, or no text is in it. Removes what no text needs;
  /// call it once, at the end.
  Status finish();

  /// True when the limits are exceeded; what is added is lost.
  bool full() const { return symbols_ > limits_.symbols || expressions_.overflown(); }

  // After finish().

  /// A place in a rule: its symbols follow one after the other, then kEnd.
  using Place = uint32_t;
  enum class What : uint8_t { end, name, terminal };
  struct Item {
    What what = What::end;
    uint32_t index = 0;  ///< of the name or terminal; at the end: of the rule's name
  };
  const Item& item(Place place) const { return items_[place]; }
  const std::vector<Place>& rules_of(uint32_t name) const { return first_[name]; }
  bool may_be_empty(uint32_t name) const { return empty_[name]; }
  uint32_t names() const { return static_cast<uint32_t>(first_.size()); }
  uint32_t start() const { return start_.index; }
  const std::vector<Expr>& terminals() const { return terminals_; }

 private:
  Symbol repeat_up_to(Symbol symbol, uint32_t most);
  std::vector<bool> productive() const;
  void find_empty();

  Limits limits_;
  Expressions expressions_;
  size_t symbols_ = 0;
  std::vector<std::vector<std::vector<Symbol>>> rules_;  // by name
  std::vector<Expr> terminals_;
  std::unordered_map<Expr, Symbol> terminal_of_;
  Symbol start_;
  std::vector<Item> items_;
  std::vector<std::vector<Place>> first_;
  std::vector<bool> empty_;
};

}  // namespace fovea::grammar
