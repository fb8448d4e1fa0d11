#include "text/jinja_parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "text/jinja_lexer.h"

namespace fovea::text::jinja {
namespace {

using Type = Token::Type;
using Ex = Expression::Type;
using St = Statement::Type;

constexpr int kMaxTreeDepth = 200;
constexpr int kMaxNesting = 100;

// Recursive descent in jinja2's order of precedence.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Block run() {
    Block block = parse_block({});
    return block;
  }

 private:
  // ---- tokens
  const Token& now() const { return tokens_[pos_]; }
  const Token& ahead(size_t n) const { return tokens_[std::min(pos_ + n, tokens_.size() - 1)]; }
  Token take() {
    Token token = now();
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  bool is_op(std::string_view text) const { return now().type == Type::op && now().text == text; }
  bool is_word(std::string_view text) const { return now().type == Type::name && now().text == text; }
  bool take_op(std::string_view text) {
    if (!is_op(text)) return false;
    take();
    return true;
  }
  bool take_word(std::string_view text) {
    if (!is_word(text)) return false;
    take();
    return true;
  }
  [[noreturn]] static void fail(int64_t offset, std::string message) {
    throw Failure{std::move(message), offset};
  }
  static std::string describe(const Token& token) {
    switch (token.type) {
      case Type::text: return "text";
      case Type::output_begin: return "'{{'";
      case Type::output_end: return "'}}'";
      case Type::block_begin: return "'{%'";
      case Type::block_end: return "'%}'";
      case Type::string: return "a string";
      case Type::end: return "the end of the template";
      default: return std::string("'").append(token.text, 0, 40).append("'");
    }
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fail(now().offset, std::string("expected ") + std::string(wanted) + ", found " + describe(now()));
  }
  void expect_op(std::string_view text) {
    if (!take_op(text)) unexpected(std::string("'") + std::string(text) + "'");
  }
  void expect(Type type, std::string_view wanted) {
    if (now().type != type) unexpected(wanted);
    take();
  }
  std::string expect_name() {
    if (now().type != Type::name) unexpected("a name");
    return take().text;
  }
  void expect_block_end() { expect(Type::block_end, "'%}'"); }

  // ---- nodes
  struct Deeper {
    Parser& parser;
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.nesting_ > kMaxNesting) {
        fail(parser.now().offset,
             std::string("nested deeper than ") + std::to_string(kMaxNesting) + " levels");
      }
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --parser.nesting_; }
  };

  static ExpressionPtr make(Ex type, int64_t offset, std::string text = "") {
    auto node = std::make_unique<Expression>();
    node->type = type;
    node->offset = offset;
    node->text = std::move(text);
    return node;
  }
  static void grow(Expression& node, const ExpressionPtr& child) {
    if (child) node.depth = std::max(node.depth, child->depth + 1);
    if (node.depth > kMaxTreeDepth) {
      fail(node.offset, std::string("expression deeper than ") + std::to_string(kMaxTreeDepth) + " levels");
    }
  }
  static void adopt(Expression& node, ExpressionPtr child) {
    grow(node, child);
    node.operands.push_back(std::move(child));
  }
  static ExpressionPtr constant(int64_t offset, Value value) {
    auto node = make(Ex::literal, offset);
    node->value = std::move(value);
    return node;
  }

  // ---- expressions
  ExpressionPtr parse_expression(bool with_ternary = true) {
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

  using Rule = ExpressionPtr (Parser::*)();

  ExpressionPtr parse_logical(std::string_view word, Ex type, Rule inner) {
    auto left = (this->*inner)();
    while (is_word(word)) {
      auto node = make(type, take().offset);
      adopt(*node, std::move(left));
      adopt(*node, (this->*inner)());
      left = std::move(node);
    }
    return left;
  }
  ExpressionPtr parse_or() { return parse_logical("or", Ex::logical_or, &Parser::parse_and); }
  ExpressionPtr parse_and() { return parse_logical("and", Ex::logical_and, &Parser::parse_not); }

  ExpressionPtr parse_not() {
    if (!is_word("not")) return parse_compare();
    const Deeper deeper(*this);
    auto node = make(Ex::logical_not, take().offset);
    adopt(*node, parse_not());
    return node;
  }

  // The comparison at the current token, taken; "" when there is none.
  std::string take_comparison() {
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

  ExpressionPtr parse_compare() {
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

  ExpressionPtr parse_binary(std::initializer_list<std::string_view> ops, Rule inner) {
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
  ExpressionPtr parse_sum() { return parse_binary({"+", "-"}, &Parser::parse_concat); }

  ExpressionPtr parse_concat() {
    auto first = parse_product();
    if (!is_op("~")) return first;
    auto node = make(Ex::concat, now().offset);
    adopt(*node, std::move(first));
    while (take_op("~"))
      adopt(*node, parse_product());
    return node;
  }
  ExpressionPtr parse_product() { return parse_binary({"*", "/", "//", "%"}, &Parser::parse_power); }
  ExpressionPtr parse_power() { return parse_binary({"**"}, &Parser::parse_filtered_unary); }
  ExpressionPtr parse_filtered_unary() { return parse_unary(true); }

  ExpressionPtr parse_unary(bool with_filters) {
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

  ExpressionPtr parse_primary() {
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

  ExpressionPtr parse_name() {
    const Token token = take();
    const std::string& name = token.text;
    if (name == "true" || name == "True") return constant(token.offset, Value::boolean(true));
    if (name == "false" || name == "False") return constant(token.offset, Value::boolean(false));
    if (name == "none" || name == "None") return constant(token.offset, Value::none());
    return make(Ex::name, token.offset, name);
  }

  ExpressionPtr parse_string() {
    const int64_t offset = now().offset;
    std::string text;
    while (now().type == Type::string)
      text += take().text;
    return constant(offset, Value::string(std::move(text)));
  }

  ExpressionPtr parse_integer() {
    const Token token = take();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
    if (error != std::errc())
      fail(token.offset, std::string("integer ") + token.text.substr(0, 40) + " is too large");
    return constant(token.offset, Value::integer(value));
  }

  ExpressionPtr parse_parenthesis() {
    const int64_t offset = take().offset;
    auto node = parse_tuple(offset, true, true);
    expect_op(")");
    return node;
  }

  // Expressions with commas between them are a tuple; `may_be_empty` allows "()".
  ExpressionPtr parse_tuple(int64_t offset, bool with_ternary, bool may_be_empty) {
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
  bool ends_tuple() const {
    return now().type == Type::output_end || now().type == Type::block_end || is_op(")");
  }

  ExpressionPtr parse_list() {
    auto node = make(Ex::list, take().offset);
    while (!is_op("]")) {
      adopt(*node, parse_expression());
      if (!take_op(",")) break;
    }
    expect_op("]");
    return node;
  }

  ExpressionPtr parse_dict() {
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

  ExpressionPtr parse_postfix(ExpressionPtr node) {
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

  ExpressionPtr parse_attribute(ExpressionPtr object) {
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

  ExpressionPtr parse_subscript(ExpressionPtr object) {
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
  ExpressionPtr parse_tuple_in_brackets(int64_t offset) {
    auto first = parse_expression();
    if (!is_op(",")) return first;
    fail(offset, "subscripts with commas are not supported");
  }

  // "(" ... ")" onto node: positional operands and named arguments.
  void parse_arguments(Expression& node) {
    expect_op("(");
    while (!is_op(")")) {
      if (is_op("*") || is_op("**")) fail(now().offset, "'*' arguments are not supported");
      if (now().type == Type::name && ahead(1).type == Type::op && ahead(1).text == "=") {
        std::string name = take().text;
        take();
        auto value = parse_expression();
        grow(node, value);
        node.named.emplace_back(std::move(name), std::move(value));
      } else {
        if (!node.named.empty()) fail(now().offset, "positional argument behind a named one");
        adopt(node, parse_expression());
      }
      if (!take_op(",")) break;
    }
    expect_op(")");
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    auto node = make(Ex::call, now().offset);
    adopt(*node, std::move(callee));
    parse_arguments(*node);
    return node;
  }

  std::string parse_dotted_name() {
    std::string name = expect_name();
    while (take_op("."))
      name += std::string(".") + expect_name();
    return name;
  }

  ExpressionPtr parse_filter(ExpressionPtr input, int64_t offset) {
    auto node = make(Ex::filter, offset, parse_dotted_name());
    adopt(*node, std::move(input));
    if (is_op("(")) parse_arguments(*node);
    return node;
  }

  ExpressionPtr parse_filters(ExpressionPtr node) {
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

  bool starts_test_argument() const {
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

  ExpressionPtr parse_test(ExpressionPtr input) {
    const int64_t offset = take().offset;
    const bool negated = take_word("not");
    auto node = make(Ex::test, offset, parse_dotted_name());
    adopt(*node, std::move(input));
    if (is_word("is")) fail(now().offset, "tests can't be chained with 'is'");
    if (is_op("(")) {
      parse_arguments(*node);
      if (!node->named.empty()) fail(offset, "tests take no named arguments");
    } else if (starts_test_argument()) {
      adopt(*node, parse_postfix(parse_primary()));
    }
    if (!negated) return node;
    auto inverse = make(Ex::logical_not, offset);
    adopt(*inverse, std::move(node));
    return inverse;
  }

  // ---- statements
  bool at_tag(std::initializer_list<std::string_view> words) const {
    return now().type == Type::block_begin && ahead(1).type == Type::name &&
           std::find(words.begin(), words.end(), ahead(1).text) != words.end();
  }

  // Statements up to a tag of `ends`, which is left; with no ends, up to the end of the template.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Block block;
    while (!at_tag(ends)) {
      const int64_t offset = now().offset;
      if (now().type == Type::text) {
        block.emplace_back();
        block.back().text = take().text;
      } else if (now().type == Type::output_begin) {
        take();
        block.emplace_back();
        block.back().type = St::output;
        block.back().offset = offset;
        block.back().value = parse_tuple(offset, true, false);
        expect(Type::output_end, "'}}'");
      } else if (now().type == Type::block_begin) {
        take();
        parse_statement(block);
      } else if (ends.size() == 0) {
        break;
      } else {
        unexpected(std::string("'{% ") + std::string(*(ends.end() - 1)) + " %}'");
      }
    }
    return block;
  }

  // The tag "{% word %}" that ends a block.
  void take_end_tag() {
    take();
    take();
    expect_block_end();
  }

  void parse_statement(Block& block) {
    if (now().type != Type::name) unexpected("a statement");
    const Token word = take();
    Statement statement;
    statement.offset = word.offset;
    if (word.text == "if") {
      parse_if(statement);
    } else if (word.text == "for") {
      parse_for(statement);
    } else if (word.text == "set") {
      parse_set(statement);
    } else if (word.text == "macro") {
      parse_macro(statement);
    } else if (word.text == "call") {
      parse_call_block(statement);
    } else if (word.text == "filter") {
      parse_filter_block(statement);
    } else if (word.text == "with") {
      parse_with(statement);
    } else if (word.text == "break" || word.text == "continue") {
      if (loops_ == 0) fail(word.offset, std::string("'") + word.text + "' outside of a loop");
      statement.type = word.text == "break" ? St::loop_break : St::loop_continue;
      expect_block_end();
    } else if (word.text == "generation") {
      // Marks what the model says, for training; rendering ignores it.
      expect_block_end();
      Block inner = parse_block({"endgeneration"});
      take_end_tag();
      for (Statement& part : inner)
        block.push_back(std::move(part));
      return;
    } else {
      fail(word.offset, std::string("unknown statement '") + word.text +
                            "'; if, for, set, macro, call, filter, with, break, " +
                            "continue, generation and raw are supported");
    }
    block.push_back(std::move(statement));
  }

  void parse_if(Statement& statement) {
    statement.type = St::branch;
    while (true) {
      auto condition = parse_tuple(statement.offset, false, false);
      expect_block_end();
      Block body = parse_block({"elif", "else", "endif"});
      statement.branches.emplace_back(std::move(condition), std::move(body));
      take();
      const std::string word = take().text;
      if (word == "elif") continue;
      expect_block_end();
      if (word == "else") {
        statement.otherwise = parse_block({"endif"});
        take_end_tag();
      }
      return;
    }
  }

  Target parse_target(bool with_member) {
    const int64_t offset = now().offset;
    std::vector<Target> parts;
    bool has_comma = false;
    do {
      Target part;
      part.offset = now().offset;
      if (take_op("(")) {
        const Deeper deeper(*this);
        part = parse_target(false);
        expect_op(")");
      } else {
        part.name = expect_name();
        if (with_member && take_op(".")) part.member = expect_name();
      }
      parts.push_back(std::move(part));
      if (!is_op(",")) break;
      take();
      has_comma = true;
    } while (now().type == Type::name || is_op("("));
    if (parts.size() == 1 && !has_comma) return std::move(parts.front());
    Target target;
    target.offset = offset;
    target.parts = std::move(parts);
    return target;
  }

  void parse_for(Statement& statement) {
    statement.type = St::loop;
    statement.target = parse_target(false);
    if (!take_word("in")) unexpected("'in'");
    statement.value = parse_tuple(statement.offset, false, false);
    if (take_word("if")) statement.condition = parse_expression();
    statement.recursive = take_word("recursive");
    expect_block_end();
    ++loops_;
    statement.body = parse_block({"else", "endfor"});
    --loops_;
    if (ahead(1).text == "else") {
      take_end_tag();
      statement.otherwise = parse_block({"endfor"});
    }
    take_end_tag();
  }

  void parse_set(Statement& statement) {
    statement.target = parse_target(true);
    if (take_op("=")) {
      statement.type = St::assign;
      statement.value = parse_tuple(statement.offset, true, false);
      expect_block_end();
      return;
    }
    statement.type = St::assign_block;
    while (is_op("|")) {
      const int64_t offset = take().offset;
      statement.value = parse_filter(std::move(statement.value), offset);
    }
    expect_block_end();
    statement.body = parse_block({"endset"});
    take_end_tag();
  }

  void parse_parameters(Statement& statement) {
    expect_op("(");
    while (!is_op(")")) {
      Parameter parameter;
      parameter.name = expect_name();
      if (take_op("=")) {
        parameter.fallback = parse_expression();
      } else if (!statement.parameters.empty() && statement.parameters.back().fallback) {
        fail(now().offset, "parameter without a default behind one that has it");
      }
      statement.parameters.push_back(std::move(parameter));
      if (!take_op(",")) break;
    }
    expect_op(")");
  }

  // A macro's body is its own world for break and continue.
  Block parse_body_outside_loops(std::string_view end) {
    const int loops = loops_;
    loops_ = 0;
    Block body = parse_block({end});
    loops_ = loops;
    take_end_tag();
    return body;
  }

  void parse_macro(Statement& statement) {
    statement.type = St::macro;
    statement.text = expect_name();
    parse_parameters(statement);
    expect_block_end();
    statement.body = parse_body_outside_loops("endmacro");
  }

  void parse_call_block(Statement& statement) {
    statement.type = St::call_block;
    if (is_op("(")) parse_parameters(statement);
    statement.value = parse_expression();
    if (statement.value->type != Ex::call) fail(statement.value->offset, "expected a call behind 'call'");
    expect_block_end();
    statement.body = parse_body_outside_loops("endcall");
  }

  void parse_filter_block(Statement& statement) {
    statement.type = St::filter_block;
    statement.value = parse_filter(nullptr, now().offset);
    while (is_op("|")) {
      const int64_t offset = take().offset;
      statement.value = parse_filter(std::move(statement.value), offset);
    }
    expect_block_end();
    statement.body = parse_block({"endfilter"});
    take_end_tag();
  }

  void parse_with(Statement& statement) {
    statement.type = St::scope;
    while (now().type == Type::name) {
      Parameter parameter;
      parameter.name = expect_name();
      expect_op("=");
      parameter.fallback = parse_expression();
      statement.parameters.push_back(std::move(parameter));
      if (!take_op(",")) break;
    }
    expect_block_end();
    statement.body = parse_block({"endwith"});
    take_end_tag();
  }

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source) {
  return Parser(source).run();
}

}  // namespace fovea::text::jinja
