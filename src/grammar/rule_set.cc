#include "grammar/rule_set.h"

#include <algorithm>

#include "base/printable.h"

namespace fovea::grammar {

RuleNode RuleNode::of(Expr text) {
  RuleNode node;
  node.kind = Kind::text;
  node.text = text;
  return node;
}

RuleNode RuleNode::of(Kind kind, std::vector<RuleNode> parts) {
  if (parts.size() == 1) {
    RuleNode only = std::move(parts[0]);
    return only;
  }
  RuleNode node;
  node.kind = kind;
  node.parts = std::move(parts);
  return node;
}

RuleNode RuleNode::times(RuleNode part, uint32_t least, uint32_t most) {
  RuleNode node;
  node.kind = Kind::repeat;
  node.parts.push_back(std::move(part));
  node.least = least;
  node.most = most;
  return node;
}

size_t RuleSet::number(const std::string& name) {
  const auto [found, added] = numbers_.try_emplace(name, names_.size());
  if (added) {
    names_.push_back(name);
    bodies_.emplace_back();
  }
  return found->second;
}

bool RuleSet::uses(const RuleNode& node, size_t rule) const {
  if (node.kind == RuleNode::Kind::rule) return node.rule == rule;
  return std::ranges::any_of(node.parts, [&](const RuleNode& part) { return uses(part, rule); });
}

/// A rule that refers to itself only at the end (or only at the beginning) of its alternatives is a repeat.
void RuleSet::unroll(size_t rule) {
  using Kind = RuleNode::Kind;
  const RuleNode& body = *bodies_[rule];
  if (!uses(body, rule)) return;
  const std::vector<RuleNode> alone{body};
  const std::vector<RuleNode>& alternatives = body.kind == Kind::choice ? body.parts : alone;
  std::vector<RuleNode> again, ends;
  int side = 0;  // 1 = at the end, -1 = at the beginning
  for (const RuleNode& alternative : alternatives) {
    if (!uses(alternative, rule)) {
      ends.push_back(alternative);
      continue;
    }
    if (alternative.kind != Kind::sequence || alternative.parts.size() < 2) return;
    const auto is_self = [&](const RuleNode& part) { return part.kind == Kind::rule && part.rule == rule; };
    const int here = is_self(alternative.parts.back()) ? 1 : is_self(alternative.parts.front()) ? -1 : 0;
    if (here == 0 || (side != 0 && side != here)) return;
    side = here;
    std::vector<RuleNode> parts = alternative.parts;
    parts.erase(here > 0 ? parts.end() - 1 : parts.begin());
    if (std::ranges::any_of(parts, [&](const RuleNode& part) { return uses(part, rule); })) return;
    again.push_back(RuleNode::of(Kind::sequence, std::move(parts)));
  }
  RuleNode loop = RuleNode::times(RuleNode::of(Kind::choice, std::move(again)), 0, kNoLimit);
  RuleNode end = RuleNode::of(Kind::choice, std::move(ends));
  std::vector<RuleNode> parts;
  parts.push_back(std::move(loop));
  parts.insert(side > 0 ? parts.end() : parts.begin(), std::move(end));
  bodies_[rule] = RuleNode::of(Kind::sequence, std::move(parts));
}

void RuleSet::count_uses(const RuleNode& node, std::vector<std::vector<size_t>>& users, size_t user,
                         size_t& open) const {
  if (node.kind == RuleNode::Kind::rule) {
    users[node.rule].push_back(user);
    ++open;
  }
  for (const RuleNode& part : node.parts)
    count_uses(part, users, user, open);
}

bool RuleSet::regular(const RuleNode& node) const {
  if (node.kind == RuleNode::Kind::rule) return expressions_[node.rule].has_value();
  return std::ranges::all_of(node.parts, [&](const RuleNode& part) { return regular(part); });
}

Expr RuleSet::expression(Expressions& x, const RuleNode& node) const {
  using Kind = RuleNode::Kind;
  std::vector<Expr> parts;
  for (const RuleNode& part : node.parts)
    parts.push_back(expression(x, part));
  switch (node.kind) {
    case Kind::text: return node.text;
    case Kind::rule: return *expressions_[node.rule];
    case Kind::sequence: return x.concat(parts);
    case Kind::choice: return x.either(parts);
    case Kind::repeat: return x.repeat(parts[0], node.least, node.most);
  }
  return Expressions::kNoText;
}

Symbol RuleSet::symbol(Grammar& grammar, const RuleNode& node) const {
  using Kind = RuleNode::Kind;
  if (regular(node)) return grammar.terminal(expression(grammar.expressions(), node));
  if (node.kind == Kind::rule) return symbols_[node.rule];
  std::vector<Symbol> parts;
  // What has no recursion between parts that have is one terminal.
  for (size_t i = 0; i < node.parts.size();) {
    size_t end = i;
    std::vector<Expr> run;
    for (; end < node.parts.size() && regular(node.parts[end]); ++end)
      run.push_back(expression(grammar.expressions(), node.parts[end]));
    if (run.empty())
      parts.push_back(symbol(grammar, node.parts[i++]));
    else
      parts.push_back(grammar.terminal(node.kind == Kind::choice ? grammar.expressions().either(run)
                                                                 : grammar.expressions().concat(run)));
    i = std::max(i, end);
  }
  if (node.kind == Kind::choice) return grammar.choice(parts);
  if (node.kind == Kind::repeat) return grammar.repeat(parts[0], node.least, node.most);
  return grammar.sequence(std::move(parts));
}

Result<Symbol> RuleSet::add_to(Grammar& grammar, const std::string& start) {
  const auto found = numbers_.find(start);
  if (found == numbers_.end() || !bodies_[found->second])
    return invalid("the grammar has no rule \"" + start + "\", with which texts begin; add it");
  for (size_t rule = 0; rule < size(); ++rule)
    if (!bodies_[rule])
      return invalid("the grammar uses the rule \"" + printable(names_[rule]) +
                     "\", which it does not define");
  for (size_t rule = 0; rule < size(); ++rule)
    unroll(rule);
  // Rules become expressions when all that they use are.
  expressions_.resize(size());
  std::vector<std::vector<size_t>> users(size());
  std::vector<size_t> open(size());
  for (size_t rule = 0; rule < size(); ++rule)
    count_uses(*bodies_[rule], users, rule, open[rule]);
  std::vector<size_t> ready;
  for (size_t rule = 0; rule < size(); ++rule)
    if (open[rule] == 0) ready.push_back(rule);
  while (!ready.empty()) {
    const size_t rule = ready.back();
    ready.pop_back();
    expressions_[rule] = expression(grammar.expressions(), *bodies_[rule]);
    for (const size_t user : users[rule])
      if (--open[user] == 0) ready.push_back(user);
  }
  if (expressions_[found->second]) return grammar.terminal(*expressions_[found->second]);
  for (size_t rule = 0; rule < size(); ++rule)
    symbols_.push_back(expressions_[rule] ? Symbol() : grammar.add_name());
  for (size_t rule = 0; rule < size(); ++rule) {
    if (expressions_[rule]) continue;
    const RuleNode& body = *bodies_[rule];
    if (body.kind == RuleNode::Kind::choice)
      for (const RuleNode& part : body.parts)
        grammar.add_rule(symbols_[rule], {symbol(grammar, part)});
    else
      grammar.add_rule(symbols_[rule], {symbol(grammar, body)});
  }
  return symbols_[found->second];
}

}  // namespace fovea::grammar
