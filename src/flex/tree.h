#pragma once
// The typed tree of an expression of FlexAttention: a mask, or a change of the score. Pure and total: every
// operation has a value for all operands, so that nothing needs to be guarded and nothing is evaluated
// lazily.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "flex/op.h"

namespace fovea::flex {

std::string_view to_string(Type type);
std::string_view to_string(Op op);
int operands(Op op);

/// What an expression may read. `q` and `k` are the indices of the query row and the key within their
/// sequence, `b` that of the sequence, `h` the query head; `score` is the scaled product of query and key.
enum class Variable : uint8_t { b, h, q, k, qlen, klen, score };
inline constexpr int kVariables = 7;
/// "b", "h", "q", "k", "qlen", "klen", "s"
std::string_view to_string(Variable variable);

/// A set of variables, as bits 1 << Variable.
using Variables = uint8_t;
constexpr Variables bit_of(Variable variable) {
  return static_cast<Variables>(1u << static_cast<unsigned>(variable));
}

/// A named array that expressions read.
struct BufferType {
  std::string name;
  Type element = Type::integer;
  int dims = 1;  ///< 1 or 2
  bool operator==(const BufferType&) const = default;
};

struct Node {
  Op op = Op::literal;
  Type type = Type::boolean;
  int a = -1, b = -1, c = -1;  ///< operands: indices of earlier nodes
  int index = 0;               ///< variable or buffer
  double value = 0;            ///< of a literal
  bool operator==(const Node&) const = default;
};

/// An expression as a list of nodes without duplicates; operands come before what uses them.
class Tree {
 public:
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  int root() const { return root_; }
  Type type() const { return node(root_).type; }
  /// The variables that node i depends on; a buffer's contents are not variables.
  Variables depends(int i) const { return depends_[static_cast<size_t>(i)]; }
  Variables depends() const { return depends(root_); }
  bool is_literal(int i) const { return node(i).op == Op::literal; }

  /// Adds a node, or finds the same one; folds what is constant. The operands' types must fit.
  int add(Node node);
  int literal(Type type, double value) { return add({.op = Op::literal, .type = type, .value = value}); }
  /// Leaves only the nodes that `root` needs, in an order that does not depend on that of the add() calls.
  void set_root(int root);
  /// A fingerprint of the nodes; the same in every process.
  uint64_t hash() const;
  /// The tree in the language, fully parenthesised. Parsing it gives the same tree.
  std::string text(const std::vector<BufferType>& buffers) const;

 private:
  int fold(const Node& node);
  int insert(const Node& node);

  std::vector<Node> nodes_;
  std::vector<Variables> depends_;
  int root_ = -1;
};

}  // namespace fovea::flex
