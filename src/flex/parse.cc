#include "flex/parse.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/printable.h"
#include "flex/lexer.h"

namespace fovea::flex {
namespace {

struct Function {
  std::string_view name;
  Op op;
};
constexpr Function kFunctions[] = {
    {"min", Op::minimum}, {"max", Op::maximum},    {"abs", Op::absolute},
    {"exp2", Op::exp2},   {"log2", Op::log2},      {"tanh", Op::tanh},
    {"sqrt", Op::sqrt},   {"int", Op::to_integer}, {"float", Op::to_real},
};
constexpr std::string_view kFunctionNames = "min, max, abs, exp2, log2, tanh, sqrt, int, float";
constexpr std::string_view kWords[] = {"and", "or", "not", "true", "false", "inf"};

/// Infix operators by how tightly they bind. Bit operators bind tighter than comparisons, as in Python.
struct Infix {
  std::string_view symbol;
  int level;
  Op op;
  bool swap = false;  ///< a > b is b < a
};
constexpr int kComparison = 3, kTightest = 8;
constexpr Infix kInfix[] = {
    {"||", 1, Op::logical_or},  {"or", 1, Op::logical_or},
    {"&&", 2, Op::logical_and}, {"and", 2, Op::logical_and},
    {"<", 3, Op::less},         {"<=", 3, Op::less_equal},
    {">", 3, Op::less, true},   {">=", 3, Op::less_equal, true},
    {"==", 3, Op::equal},       {"!=", 3, Op::not_equal},
    {"|", 4, Op::bit_or},       {"^", 5, Op::bit_xor},
    {"&", 6, Op::bit_and},      {"<<", 7, Op::shift_left},
    {">>", 7, Op::shift_right}, {"+", 8, Op::add},
    {"-", 8, Op::subtract},     {"*", 9, Op::multiply},
    {"/", 9, Op::divide},       {"//", 9, Op::floor_divide},
    {"%", 9, Op::modulo},
};
constexpr int kProduct = kTightest + 1;

const Infix* infix_of(const Token& token) {
  if (token.kind != Token::Kind::symbol && token.kind != Token::Kind::name) return nullptr;
  const auto* found = std::ranges::find(kInfix, token.text, &Infix::symbol);
  return found == std::end(kInfix) ? nullptr : found;
}

std::optional<Variable> variable_of(std::string_view name) {
  for (int i = 0; i < kVariables; ++i)
    if (to_string(static_cast<Variable>(i)) == name) return static_cast<Variable>(i);
  return std::nullopt;
}

class Parser {
 public:
  Parser(Role role, std::string_view text, const std::vector<BufferType>& buffers)
      : role_(role), lexer_(role == Role::mask ? "mask" : "score", text), buffers_(buffers) {}

  Result<Tree> parse() {
    FOVEA_RETURN_IF_ERROR(advance());
    if (token_.kind == Token::Kind::end)
      return lexer_.expected(token_,
                             role_ == Role::mask ? "a condition such as k <= q" : "a score such as 0.5 * s");
    FOVEA_TRY(root, ternary());
    if (token_.kind != Token::Kind::end) return lexer_.expected(token_, "an operator or the end");
    if (role_ == Role::mask && type(root) != Type::boolean)
      return lexer_.error(0, "expected a condition (bool), found a value of type " +
                                 std::string(to_string(type(root))) + "; compare it, as in x != 0");
    if (role_ == Role::score) {
      if (type(root) == Type::boolean)
        return lexer_.error(0,
                            "expected a number, found a condition (bool); write c ? s : -inf to hide keys");
      root = convert(root, Type::real);
    }
    tree_.set_root(root);
    return std::move(tree_);
  }

 private:
  Status advance() {
    FOVEA_TRY(token, lexer_.next());
    token_ = token;
    if (tree_.nodes().size() > kMaxNodes)
      return lexer_.error(token_.at, "the expression has more than " + std::to_string(kMaxNodes) +
                                         " operations; move parts of it into buffers");
    return {};
  }
  bool at(std::string_view text) const {
    return (token_.kind == Token::Kind::symbol || token_.kind == Token::Kind::name) && token_.text == text;
  }
  Status take(std::string_view symbol) {
    if (!at(symbol)) return lexer_.expected(token_, "'" + std::string(symbol) + "'");
    return advance();
  }

  Type type(int node) const { return tree_.node(node).type; }
  int convert(int node, Type to) {
    if (type(node) == to) return node;
    return tree_.add({.op = to == Type::real ? Op::to_real : Op::to_integer, .type = to, .a = node});
  }
  /// The wider of two types, at least int.
  Type wider(int a, int b) const { return std::max({Type::integer, type(a), type(b)}); }

  Error wrong_type(size_t where, std::string_view of, std::string_view wanted, int node) const {
    return lexer_.error(where, std::string(of) + " takes " + std::string(wanted) + ", not " +
                                   std::string(to_string(type(node))));
  }

  /// Parses an operand with the depth of nesting counted.
  template <class F>
  Result<int> nested(F parse) {
    if (depth_ == kMaxDepth)
      return lexer_.error(token_.at, "nested more than " + std::to_string(kMaxDepth) + " levels deep");
    ++depth_;
    Result<int> result = parse();
    --depth_;
    return result;
  }

  Result<int> ternary() {
    const size_t where = token_.at;
    FOVEA_TRY(condition, binary(1));
    if (!at("?")) return condition;
    if (type(condition) != Type::boolean)
      return wrong_type(where, "'?'", "a condition (bool) before it", condition);
    FOVEA_RETURN_IF_ERROR(advance());
    FOVEA_TRY(yes, nested([this] { return ternary(); }));
    FOVEA_RETURN_IF_ERROR(take(":"));
    FOVEA_TRY(no, nested([this] { return ternary(); }));
    const Type result = type(yes) == type(no) ? type(yes) : wider(yes, no);
    const int b = convert(yes, result), c = convert(no, result);
    return tree_.add({.op = Op::select, .type = result, .a = condition, .b = b, .c = c});
  }

  Result<int> binary(int level) {
    if (level > kProduct) return unary();
    FOVEA_TRY(first, binary(level + 1));
    int left = first;
    for (bool compared = false;; compared = true) {
      const Infix* infix = infix_of(token_);
      if (infix == nullptr || infix->level != level) return left;
      if (level == kComparison && compared)
        return lexer_.error(token_.at, "comparisons don't chain; write a < b && b < c");
      const Token operation = token_;
      FOVEA_RETURN_IF_ERROR(advance());
      FOVEA_TRY(right, binary(level + 1));
      FOVEA_TRY(joined, join(*infix, operation, left, right));
      left = joined;
    }
  }

  Result<int> join(const Infix& infix, const Token& token, int a, int b) {
    const std::string quoted = "'" + std::string(token.text) + "'";
    const bool both_bool = type(a) == Type::boolean && type(b) == Type::boolean;
    Op op = infix.op;
    if (infix.swap) std::swap(a, b);
    switch (op) {
      case Op::logical_and:
      case Op::logical_or:
        for (const int x : {a, b})
          if (type(x) != Type::boolean) return wrong_type(token.at, quoted, "conditions (bool)", x);
        return tree_.add({.op = op, .type = Type::boolean, .a = a, .b = b});
      case Op::less:
      case Op::less_equal:
      case Op::equal:
      case Op::not_equal: {
        const Type common = wider(a, b);
        const int left = convert(a, common), right = convert(b, common);
        return tree_.add({.op = op, .type = Type::boolean, .a = left, .b = right});
      }
      case Op::bit_and:
      case Op::bit_or:
      case Op::bit_xor:
        if (both_bool) {
          op = op == Op::bit_and ? Op::logical_and : op == Op::bit_or ? Op::logical_or : Op::not_equal;
          if (op == Op::not_equal) a = convert(a, Type::integer), b = convert(b, Type::integer);
          return tree_.add({.op = op, .type = Type::boolean, .a = a, .b = b});
        }
        [[fallthrough]];
      case Op::shift_left:
      case Op::shift_right:
      case Op::floor_divide:
      case Op::modulo: {
        for (const int x : {a, b})
          if (type(x) == Type::real) return wrong_type(token.at, quoted, "integers", x);
        const int left = convert(a, Type::integer), right = convert(b, Type::integer);
        return tree_.add({.op = op, .type = Type::integer, .a = left, .b = right});
      }
      default: break;
    }
    const Type common = op == Op::divide ? Type::real : wider(a, b);
    const int left = convert(a, common), right = convert(b, common);
    return tree_.add({.op = op, .type = common, .a = left, .b = right});
  }

  Result<int> unary() {
    const Token token = token_;
    for (const std::string_view sign : {"-", "+", "~", "!", "not"}) {
      if (!at(sign)) continue;
      FOVEA_RETURN_IF_ERROR(advance());
      // `not` binds less tightly than comparisons.
      FOVEA_TRY(x, nested([&, this] { return sign == "not" ? binary(kComparison) : unary(); }));
      const std::string quoted = "'" + std::string(sign) + "'";
      if (sign == "!" || sign == "not") {
        if (type(x) != Type::boolean) return wrong_type(token.at, quoted, "a condition (bool)", x);
        return tree_.add({.op = Op::logical_not, .type = Type::boolean, .a = x});
      }
      if (sign == "~") {
        if (type(x) == Type::boolean)
          return tree_.add({.op = Op::logical_not, .type = Type::boolean, .a = x});
        if (type(x) == Type::real) return wrong_type(token.at, quoted, "an integer", x);
        return tree_.add({.op = Op::bit_not, .type = Type::integer, .a = x});
      }
      const int number = convert(x, wider(x, x));
      if (sign == "+") return number;
      return tree_.add({.op = Op::negate, .type = type(number), .a = number});
    }
    return primary();
  }

  Result<int> primary() {
    const Token token = token_;
    if (at("(")) {
      FOVEA_RETURN_IF_ERROR(advance());
      FOVEA_TRY(inner, nested([this] { return ternary(); }));
      FOVEA_RETURN_IF_ERROR(take(")"));
      return inner;
    }
    if (token.kind == Token::Kind::integer || token.kind == Token::Kind::real) {
      FOVEA_RETURN_IF_ERROR(advance());
      return tree_.literal(token.kind == Token::Kind::real ? Type::real : Type::integer, token.value);
    }
    if (token.kind != Token::Kind::name)
      return lexer_.expected(token, "an operand: a number, a variable, a buffer or '('");
    FOVEA_RETURN_IF_ERROR(advance());
    if (token.text == "true" || token.text == "false")
      return tree_.literal(Type::boolean, token.text == "true" ? 1 : 0);
    if (token.text == "inf") return tree_.literal(Type::real, std::numeric_limits<double>::infinity());
    const auto* function = std::ranges::find(kFunctions, token.text, &Function::name);
    if (function != std::end(kFunctions)) return call(*function, token);
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i].name == token.text) return element(static_cast<int>(i), token);
    if (const auto variable = variable_of(token.text)) return read_variable(*variable, token);
    return unknown(token);
  }

  Result<int> read_variable(Variable variable, const Token& token) {
    if (variable == Variable::score && role_ == Role::mask)
      return lexer_.error(token.at,
                          "a mask can't read the score s; hide keys by score in the score, as in "
                          "s < 0 ? -inf : s");
    if (at("[")) return lexer_.error(token.at, "'" + std::string(token.text) + "' is a number, not a buffer");
    return tree_.add({.op = Op::variable,
                      .type = variable == Variable::score ? Type::real : Type::integer,
                      .index = static_cast<int>(variable)});
  }

  Error unknown(const Token& token) const {
    std::string message = "unknown name '" + printable(token.text, 40) + "'; expected ";
    message += role_ == Role::mask ? "b, h, q, k, qlen, klen" : "s, b, h, q, k, qlen, klen";
    message += buffers_.empty() ? ", a buffer (none is given)" : ", a buffer (";
    for (size_t i = 0; i < buffers_.size(); ++i)
      message += (i > 0 ? ", " : "") + buffers_[i].name;
    if (!buffers_.empty()) message += ")";
    return lexer_.error(token.at, message + " or a function (" + std::string(kFunctionNames) + ")");
  }

  Result<int> call(const Function& function, const Token& token) {
    const std::string name(function.name);
    const int wanted = operands(function.op);
    if (!at("(")) return lexer_.expected(token_, "'(' after the function " + name);
    FOVEA_RETURN_IF_ERROR(advance());
    std::vector<int> arguments;
    while (true) {
      FOVEA_TRY(argument, nested([this] { return ternary(); }));
      arguments.push_back(argument);
      if (!at(",")) break;
      FOVEA_RETURN_IF_ERROR(advance());
    }
    FOVEA_RETURN_IF_ERROR(take(")"));
    if (static_cast<int>(arguments.size()) < wanted || (wanted == 1 && arguments.size() > 1))
      return lexer_.error(token.at, name + " takes " +
                                        (wanted == 1 ? "one argument" : "two or more arguments") + ", not " +
                                        std::to_string(arguments.size()));
    int result = arguments[0];
    switch (function.op) {
      case Op::to_integer: return convert(result, Type::integer);
      case Op::to_real: return convert(result, Type::real);
      case Op::absolute: {
        const int number = convert(result, wider(result, result));
        return tree_.add({.op = Op::absolute, .type = type(number), .a = number});
      }
      case Op::minimum:
      case Op::maximum:
        for (size_t i = 1; i < arguments.size(); ++i) {
          const Type common = wider(result, arguments[i]);
          const int left = convert(result, common), right = convert(arguments[i], common);
          result = tree_.add({.op = function.op, .type = common, .a = left, .b = right});
        }
        return result;
      default: break;
    }
    const int number = convert(result, Type::real);
    return tree_.add({.op = function.op, .type = Type::real, .a = number});
  }

  Result<int> index() {
    const size_t where = token_.at;
    FOVEA_TRY(value, nested([this] { return ternary(); }));
    if (type(value) == Type::real) return wrong_type(where, "an index", "an integer (see int())", value);
    return convert(value, Type::integer);
  }

  /// table[i, j] or table[i][j].
  Result<int> element(int buffer, const Token& token) {
    const BufferType& t = buffers_[static_cast<size_t>(buffer)];
    std::vector<int> indices;
    if (!at("[")) return lexer_.expected(token_, "'[' after the buffer " + t.name);
    while (at("[")) {
      do {
        FOVEA_RETURN_IF_ERROR(advance());
        FOVEA_TRY(i, index());
        indices.push_back(i);
      } while (at(","));
      FOVEA_RETURN_IF_ERROR(take("]"));
    }
    if (static_cast<int>(indices.size()) != t.dims)
      return lexer_.error(token.at, "the buffer " + t.name + " has " + std::to_string(t.dims) + " dimension" +
                                        (t.dims == 1 ? "" : "s") + ", not " + std::to_string(indices.size()));
    return tree_.add({.op = t.dims == 1 ? Op::read1 : Op::read2,
                      .type = t.element,
                      .a = indices[0],
                      .b = t.dims == 1 ? -1 : indices[1],
                      .index = buffer});
  }

  Role role_;
  Lexer lexer_;
  const std::vector<BufferType>& buffers_;
  Tree tree_;
  Token token_;
  int depth_ = 0;
};

}  // namespace

Result<Tree> parse(Role role, std::string_view text, const std::vector<BufferType>& buffers) {
  if (text.size() > kMaxText)
    return invalid(std::string(role == Role::mask ? "mask" : "score") + " has " +
                   std::to_string(text.size()) + " characters; at most " + std::to_string(kMaxText) +
                   " are allowed");
  return Parser(role, text, buffers).parse();
}

Status check_buffers(const std::vector<BufferType>& buffers) {
  std::vector<std::string_view> names;
  for (const BufferType& buffer : buffers) {
    const std::string quoted = "buffer '" + printable(buffer.name, 40) + "'";
    const std::string_view name = buffer.name;
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const bool named = !name.empty() && is_letter(name[0]) && std::ranges::all_of(name, [&](char c) {
      return is_letter(c) || (c >= '0' && c <= '9');
    });
    if (!named || name.size() > 64)
      return invalid(quoted + " is not a name: at most 64 letters, digits and _, a letter or _ first");
    if (variable_of(name) || std::ranges::find(kWords, name) != std::end(kWords) ||
        std::ranges::find(kFunctions, name, &Function::name) != std::end(kFunctions))
      return invalid(quoted + " has a name that the language uses; rename it");
    if (std::ranges::find(names, name) != names.end()) return invalid(quoted + " is given twice");
    if (buffer.dims != 1 && buffer.dims != 2)
      return invalid(quoted + " has " + std::to_string(buffer.dims) + " dimensions; it must have 1 or 2");
    names.push_back(name);
  }
  return {};
}

}  // namespace fovea::flex
