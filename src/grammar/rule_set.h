#pragma once
// Rules of a grammar that a person wrote, before they become symbols: those without recursion become
// expressions, so that the parser sees only what needs it.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "grammar/grammar.h"

namespace fovea::grammar {

struct RuleNode {
  enum class Kind : uint8_t { text, rule, sequence, choice, repeat } kind = Kind::sequence;
  Expr text = Expressions::kEmpty;  ///< text
  size_t rule = 0;                  ///< rule: its number
  std::vector<RuleNode> parts;      ///< sequence, choice; repeat: one
  uint32_t least = 0, most = 0;     ///< repeat

  static RuleNode of(Expr text);
  static RuleNode of(Kind kind, std::vector<RuleNode> parts);
  static RuleNode times(RuleNode part, uint32_t least, uint32_t most);
};

class RuleSet {
 public:
  static constexpr int kMaxDepth = 200;

  /// The number of a rule, defined or not.
  size_t number(const std::string& name);
  bool defined(size_t rule) const { return bodies_[rule].has_value(); }
  void define(size_t rule, RuleNode body) { bodies_[rule] = std::move(body); }
  size_t size() const { return names_.size(); }

  /// The symbol of rule `start`. Errors: a rule that is used and not defined.
  Result<Symbol> add_to(Grammar& grammar, const std::string& start);

 private:
  bool uses(const RuleNode& node, size_t rule) const;
  void unroll(size_t rule);
  bool regular(const RuleNode& node) const;
  void count_uses(const RuleNode& node, std::vector<std::vector<size_t>>& users, size_t user,
                  size_t& open) const;
  Expr expression(Expressions& expressions, const RuleNode& node) const;
  Symbol symbol(Grammar& grammar, const RuleNode& node) const;

  std::vector<std::string> names_;
  std::map<std::string, size_t> numbers_;
  std::vector<std::optional<RuleNode>> bodies_;
  std::vector<std::optional<Expr>> expressions_;  // of rules without recursion
  std::vector<Symbol> symbols_;
};

}  // namespace fovea::grammar
