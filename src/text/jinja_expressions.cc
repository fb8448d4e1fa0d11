#include "text/jinja_expressions.h"

#include <charconv>

namespace fovea::text::jinja {
namespace {

using Ex = Expression::Type;

constexpr int kMaxTreeDepth = 200;

ExpressionPtr make(Ex type, int64_t offset, std::string text = "") {
  auto node = std::make_unique<Expression>();
  node->type = type;
  node->offset = offset;
  node->text = std::move(text);
  return node;
}

void grow(Expression& node, const ExpressionPtr& child) {
  if (child) node.depth = std::max(node.depth, child->depth + 1);
  if (node.depth > kMaxTreeDepth) {
    TokenReader::fail(node.offset,
                      std::string("expression deeper than ") + std::to_string(kMaxTreeDepth) + " levels");
  }
}

void adopt(Expression& node, ExpressionPtr child) {
  grow(node, child);
  node.operands.push_back(std::move(child));
}

ExpressionPtr constant(int64_t offset, Value value) {
  auto node = make(Ex::literal, offset);
  node->value = std::move(value);
  return node;
}

}  // namespace

ExpressionPtr ExpressionParser::parse_expression(bool with_ternary) {
  const Deeper deeper(*this);
  if (!with_ternary) return parse_or();
  auto value = parse_or();
  while (is_word("if")) {
    auto node = make(Ex::ternary, take().offset);
    adopt(*node, parse_or());
    adopt(*node, std::move(value));
    adopt(*node, take_word("else") ? parse_expression() : nullptr);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_logical(std::string_view word, Ex type, Rule inner) {
  auto left = (this->*inner)();
  while (is_word(word)) {
    auto node = make(type, take().offset);
    adopt(*node, std::move(left));
    adopt(*node, (this->*inner)());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_or() {
  return parse_logical("or", Ex::logical_or, &ExpressionParser::parse_and);
}

ExpressionPtr ExpressionParser::parse_and() {
  return parse_logical("and", Ex::logical_and, &ExpressionParser::parse_not);
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!is_word("not")) return parse_compare();
  const Deeper deeper(*this);
  auto node = make(Ex::logical_not, take().offset);
  adopt(*node, parse_not());
  return node;
}

std::string ExpressionParser::take_comparison() {
  for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
    if (take_op(op)) return op;
  }
  if (take_word("in")) return "in";
  if (is_word("not") && ahead(1).type == Type::name && ahead(1).text == "in") {
    take();
    take();
    return "not in";
  }
  return "";
}

ExpressionPtr ExpressionParser::parse_compare() {
  auto first = parse_sum();
  const int64_t offset = now().offset;
  std::string op = take_comparison();
  if (op.empty()) return first;
  auto node = make(Ex::compare, offset);
  adopt(*node, std::move(first));
  for (; !op.empty(); op = take_comparison()) {
    node->operators.push_back(op);
    adopt(*node, parse_sum());
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_binary(std::initializer_list<std::string_view> ops, Rule inner) {
  auto left = (this->*inner)();
  while (now().type == Type::op && std::find(ops.begin(), ops.end(), now().text) != ops.end()) {
    const Token op = take();
    auto node = make(Ex::binary, op.offset, op.text);
    adopt(*node, std::move(left));
    adopt(*node, (this->*inner)());
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_binary({"+", "-"}, &ExpressionParser::parse_concat);
}

ExpressionPtr ExpressionParser::parse_concat() {
  auto first = parse_product();
  if (!is_op("~")) return first;
  auto node = make(Ex::concat, now().offset);
  adopt(*node, std::move(first));
  while (take_op("~"))
    adopt(*node, parse_product());
  return node;
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_binary({"*", "/", "//", "%"}, &ExpressionParser::parse_power);
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_binary({"**"}, &ExpressionParser::parse_filtered_unary);
}

ExpressionPtr ExpressionParser::parse_filtered_unary() {
  return parse_unary(true);
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr node;
  if (is_op("-") || is_op("+")) {
    const Deeper deeper(*this);
    const Token sign = take();
    node = make(sign.text == "-" ? Ex::negate : Ex::plus, sign.offset);
    adopt(*node, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = now();
  switch (token.type) {
    case Type::name: return parse_name();
    case Type::string: return parse_string();
    case Type::integer: return parse_integer();
    case Type::real: {
      const Token number = take();
      double value = 0;
      std::from_chars(number.text.data(), number.text.data() + number.text.size(), value);
      return constant(number.offset, Value::real(value));
    }
    case Type::op:
      if (token.text == "(") return parse_parenthesis();
      if (token.text == "[") return parse_list();
      if (token.text == "{") return parse_dict();
      break;
    default: break;
  }
  unexpected("an expression");
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token token = take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return constant(token.offset, Value::boolean(true));
  if (name == "false" || name == "False") return constant(token.offset, Value::boolean(false));
  if (name == "none" || name == "None") return constant(token.offset, Value::none());
  if (name == "varargs") reads_varargs_ = true;
  if (name == "kwargs") reads_kwargs_ = true;
  if (name == "caller") reads_caller_ = true;
  return make(Ex::name, token.offset, name);
}

ExpressionPtr ExpressionParser::parse_string() {
  const int64_t offset = now().offset;
  std::string text;
  while (now().type == Type::string)
    text += take().text;
  return constant(offset, Value::string(std::move(text)));
}

ExpressionPtr ExpressionParser::parse_integer() {
  const Token token = take();
  int64_t value = 0;
  const char kind = token.text.size() > 2 ? token.text[1] : '0';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  const char* begin = token.text.data() + (base == 10 ? 0 : 2);
  const auto [end, error] = std::from_chars(begin, token.text.data() + token.text.size(), value, base);
  if (error != std::errc())
    fail(token.offset, std::string("integer ") + token.text.substr(0, 40) + " is too large");
  return constant(token.offset, Value::integer(value));
}

ExpressionPtr ExpressionParser::parse_parenthesis() {
  const int64_t offset = take().offset;
  auto node = parse_tuple(offset, true, true);
  expect_op(")");
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple(int64_t offset, bool with_ternary, bool may_be_empty) {
  auto tuple = make(Ex::tuple, offset);
  bool has_comma = false;
  while (!ends_tuple()) {
    adopt(*tuple, parse_expression(with_ternary));
    if (!take_op(",")) break;
    has_comma = true;
  }
  if (tuple->operands.empty() && !may_be_empty) unexpected("an expression");
  if (tuple->operands.size() == 1 && !has_comma) return std::move(tuple->operands.front());
  return tuple;
}

bool ExpressionParser::ends_tuple() const {
  return now().type == Type::output_end || now().type == Type::block_end || is_op(")");
}

ExpressionPtr ExpressionParser::parse_list() {
  auto node = make(Ex::list, take().offset);
  while (!is_op("]")) {
    adopt(*node, parse_expression());
    if (!take_op(",")) break;
  }
  expect_op("]");
  return node;
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto node = make(Ex::dict, take().offset);
  while (!is_op("}")) {
    adopt(*node, parse_expression());
    expect_op(":");
    adopt(*node, parse_expression());
    if (!take_op(",")) break;
  }
  expect_op("}");
  return node;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (is_op(".")) {
      node = parse_attribute(std::move(node));
    } else if (is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const int64_t offset = take().offset;
  if (now().type == Type::integer) {
    auto node = make(Ex::subscript, offset);
    adopt(*node, std::move(object));
    adopt(*node, parse_integer());
    return node;
  }
  auto node = make(Ex::attribute, offset, expect_name());
  adopt(*node, std::move(object));
  return node;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int64_t offset = take().offset;
  ExpressionPtr parts[3];
  size_t count = 0;
  bool slice = false;
  for (;;) {
    if (!is_op(":") && !is_op("]")) parts[count] = parse_tuple_in_brackets(offset);
    if (!is_op(":") || count == 2) break;
    take();
    slice = true;
    ++count;
  }
  expect_op("]");
  auto node = make(slice ? Ex::slice : Ex::subscript, offset);
  adopt(*node, std::move(object));
  if (!slice && !parts[0]) fail(offset, "expected a subscript between the brackets");
  for (size_t i = 0; i < (slice ? 3u : 1u); ++i)
    adopt(*node, std::move(parts[i]));
  return node;
}

ExpressionPtr ExpressionParser::parse_tuple_in_brackets(int64_t offset) {
  auto first = parse_expression();
  if (!is_op(",")) return first;
  auto tuple = make(Ex::tuple, offset);
  adopt(*tuple, std::move(first));
  while (take_op(",")) {
    if (is_op("]")) break;
    adopt(*tuple, parse_expression());
  }
  return tuple;
}

void ExpressionParser::parse_arguments(Expression& node) {
  expect_op("(");
  while (!is_op(")")) {
    if (is_op("*") || is_op("**")) {
      const Token star = take();
      ExpressionPtr& slot = star.text == "*" ? node.spread : node.spread_named;
      if (slot || node.spread_named)
        fail(star.offset, "expected one '*' argument and then one '**' argument");
      slot = parse_expression();
      grow(node, slot);
    } else if (now().type == Type::name && ahead(1).type == Type::op && ahead(1).text == "=") {
      std::string name = take().text;
      take();
      const auto same = [&](const auto& argument) { return argument.first == name; };
      if (node.spread_named || std::any_of(node.named.begin(), node.named.end(), same))
        fail(now().offset, "argument '" + name + "' is given twice, or after '**'");
      auto value = parse_expression();
      grow(node, value);
      node.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!node.named.empty() || node.spread || node.spread_named)
        fail(now().offset, "positional argument after a named one");
      adopt(node, parse_expression());
    }
    if (!take_op(",")) break;
  }
  expect_op(")");
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  auto node = make(Ex::call, now().offset);
  adopt(*node, std::move(callee));
  parse_arguments(*node);
  return node;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name();
  while (take_op("."))
    name += std::string(".") + expect_name();
  return name;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input, int64_t offset) {
  auto node = make(Ex::filter, offset, parse_dotted_name());
  adopt(*node, std::move(input));
  if (is_op("(")) parse_arguments(*node);
  return node;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr node) {
  while (true) {
    if (is_op("|")) {
      const int64_t offset = take().offset;
      node = parse_filter(std::move(node), offset);
    } else if (is_word("is")) {
      node = parse_test(std::move(node));
    } else if (is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

bool ExpressionParser::starts_test_argument() const {
  switch (now().type) {
    case Type::name:
      return now().text != "else" && now().text != "or" && now().text != "and" && now().text != "is" &&
             now().text != "if" && now().text != "not" && now().text != "in";
    case Type::string:
    case Type::integer:
    case Type::real: return true;
    case Type::op: return now().text == "(" || now().text == "[" || now().text == "{";
    default: return false;
  }
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int64_t offset = take().offset;
  const bool negated = take_word("not");
  auto node = make(Ex::test, offset, parse_dotted_name());
  adopt(*node, std::move(input));
  if (is_word("is")) fail(now().offset, "tests can't be chained with 'is'");
  if (is_op("(")) {
    parse_arguments(*node);
    if (!node->named.empty() || node->spread || node->spread_named)
      fail(offset, "tests take no named arguments");
  } else if (starts_test_argument()) {
    adopt(*node, parse_postfix(parse_primary()));
  }
  if (!negated) return node;
  auto inverse = make(Ex::logical_not, offset);
  adopt(*inverse, std::move(node));
  return inverse;
}

}  // namespace fovea::text::jinja
