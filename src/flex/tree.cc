#include "flex/tree.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/digest.h"
#include "flex/evaluate.h"

namespace fovea::flex {
namespace {

constexpr std::string_view kVariableNames[kVariables] = {"b", "h", "q", "k", "qlen", "klen", "s"};

/// How an operation with one or two operands is written: between its operands, or before them as a function.
struct Spelling {
  std::string_view text;
  bool infix = false;
};

Spelling spelling(Op op) {
  switch (op) {
    case Op::to_integer: return {"int"};
    case Op::to_real: return {"float"};
    case Op::negate: return {"-"};
    case Op::bit_not: return {"~"};
    case Op::logical_not: return {"!"};
    case Op::absolute: return {"abs"};
    case Op::exp2: return {"exp2"};
    case Op::log2: return {"log2"};
    case Op::tanh: return {"tanh"};
    case Op::sqrt: return {"sqrt"};
    case Op::add: return {"+", true};
    case Op::subtract: return {"-", true};
    case Op::multiply: return {"*", true};
    case Op::divide: return {"/", true};
    case Op::floor_divide: return {"//", true};
    case Op::modulo: return {"%", true};
    case Op::shift_left: return {"<<", true};
    case Op::shift_right: return {">>", true};
    case Op::bit_and: return {"&", true};
    case Op::bit_or: return {"|", true};
    case Op::bit_xor: return {"^", true};
    case Op::minimum: return {"min"};
    case Op::maximum: return {"max"};
    case Op::less: return {"<", true};
    case Op::less_equal: return {"<=", true};
    case Op::equal: return {"==", true};
    case Op::not_equal: return {"!=", true};
    case Op::logical_and: return {"&&", true};
    case Op::logical_or: return {"||", true};
    default: return {"?"};
  }
}

std::string literal_text(const Node& node) {
  if (node.type == Type::boolean) return node.value != 0 ? "true" : "false";
  char text[40];
  if (node.type == Type::integer) {
    std::snprintf(text, sizeof text, node.value < 0 ? "(%.0f)" : "%.0f", node.value);
    return text;
  }
  if (std::isinf(node.value)) return node.value < 0 ? "(-inf)" : "inf";
  std::snprintf(text, sizeof text, "%.17g", std::abs(node.value));
  std::string number = text;
  if (number.find_first_of(".e") == std::string::npos) number += ".0";
  return std::signbit(node.value) ? "(-" + number + ")" : number;
}

}  // namespace

std::string_view to_string(Type type) {
  switch (type) {
    case Type::boolean: return "bool";
    case Type::integer: return "int";
    case Type::real: return "float";
  }
  return "?";
}

std::string_view to_string(Op op) {
  static constexpr std::string_view kNames[] = {
#define X(name, operands) #name,
      FOVEA_FLEX_OPS(X)
#undef X
  };
  return kNames[static_cast<size_t>(op)];
}

int operands(Op op) {
  static constexpr int kOperands[] = {
#define X(name, operands) operands,
      FOVEA_FLEX_OPS(X)
#undef X
  };
  return kOperands[static_cast<size_t>(op)];
}

std::string_view to_string(Variable variable) {
  return kVariableNames[static_cast<size_t>(variable)];
}

int Tree::insert(const Node& node) {
  for (size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i] == node && std::signbit(nodes_[i].value) == std::signbit(node.value))
      return static_cast<int>(i);
  Variables depends = node.op == Op::variable ? bit_of(static_cast<Variable>(node.index)) : Variables{0};
  for (const int operand : {node.a, node.b, node.c})
    if (operand >= 0) depends = static_cast<Variables>(depends | depends_[static_cast<size_t>(operand)]);
  nodes_.push_back(node);
  depends_.push_back(depends);
  return static_cast<int>(nodes_.size()) - 1;
}

/// The index of what `n` is equal to, if it is simpler; else -1.
int Tree::fold(const Node& n) {
  const auto value_is = [this](int i, double value) { return is_literal(i) && node(i).value == value; };
  switch (n.op) {
    case Op::literal:
    case Op::variable:
    case Op::read1:
    case Op::read2: return -1;
    case Op::select:
      if (is_literal(n.a)) return node(n.a).value != 0 ? n.b : n.c;
      return n.b == n.c ? n.b : -1;
    case Op::logical_and:
    case Op::logical_or: {
      const bool absorbing = n.op == Op::logical_or;
      for (const auto& [one, other] : {std::pair{n.a, n.b}, std::pair{n.b, n.a}})
        if (is_literal(one)) return value_is(one, absorbing ? 1 : 0) ? one : other;
      return n.a == n.b ? n.a : -1;
    }
    case Op::logical_not:
      if (node(n.a).op == Op::logical_not) return node(n.a).a;
      break;
    default: break;
  }
  if (!is_literal(n.a) || (n.b >= 0 && !is_literal(n.b))) return -1;
  const double value =
      apply<double>(n.op, node(n.a).type, node(n.a).value, n.b >= 0 ? node(n.b).value : 0, 0);
  if (std::isnan(value)) return -1;  // stays an operation: NaN has no literal
  return literal(n.type, value);
}

int Tree::add(Node node) {
  const int folded = fold(node);
  return folded >= 0 ? folded : insert(node);
}

void Tree::set_root(int root) {
  const std::vector<Node> all = std::move(nodes_);
  nodes_.clear();
  depends_.clear();
  std::vector<int> place(all.size(), -1);
  // Operands first, from the root on: an order that depends on the meaning alone.
  const auto move = [&](const auto& self, int i) -> int {
    int& at = place[static_cast<size_t>(i)];
    if (at >= 0) return at;
    Node n = all[static_cast<size_t>(i)];
    for (int* operand : {&n.a, &n.b, &n.c})
      if (*operand >= 0) *operand = self(self, *operand);
    return at = insert(n);
  };
  root_ = move(move, root);
}

uint64_t Tree::hash() const {
  Digest digest;
  digest.add(nodes_.size()).add(root_);
  for (const Node& n : nodes_)
    digest.add(n.op).add(n.type).add(n.a).add(n.b).add(n.c).add(n.index).add(n.value);
  return digest.value();
}

std::string Tree::text(const std::vector<BufferType>& buffers) const {
  std::vector<std::string> texts(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    const auto of = [&texts](int operand) -> const std::string& {
      return texts[static_cast<size_t>(operand)];
    };
    const auto& [word, infix] = spelling(n.op);
    std::string& text = texts[i];
    switch (n.op) {
      case Op::literal: text = literal_text(n); break;
      case Op::variable: text = kVariableNames[n.index]; break;
      case Op::read1: text = buffers[static_cast<size_t>(n.index)].name + "[" + of(n.a) + "]"; break;
      case Op::read2:
        text = buffers[static_cast<size_t>(n.index)].name + "[" + of(n.a) + ", " + of(n.b) + "]";
        break;
      case Op::select: text = "(" + of(n.a) + " ? " + of(n.b) + " : " + of(n.c) + ")"; break;
      default:
        if (infix)
          text = "(" + of(n.a) + " " + std::string(word) + " " + of(n.b) + ")";
        else if (n.op == Op::negate || n.op == Op::bit_not || n.op == Op::logical_not)
          text = "(" + std::string(word) + of(n.a) + ")";
        else
          text = std::string(word) + "(" + of(n.a) + (n.b >= 0 ? ", " + of(n.b) : "") + ")";
    }
    if (text.size() > 65536) return "...";
  }
  return texts[static_cast<size_t>(root_)];
}

}  // namespace fovea::flex
