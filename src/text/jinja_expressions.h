#pragma once
// First half of the parser: a cursor over the tokens of a template, and expressions by recursive descent in
// jinja2's order of precedence.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace fovea::text::jinja {

/// The tokens of a template, one at a time.
class TokenReader {
 public:
  [[noreturn]] static void fail(int64_t offset, std::string message) {
    throw Failure{std::move(message), offset};
  }

 protected:
  using Type = Token::Type;

  explicit TokenReader(std::string_view source) : tokens_(tokenize(source)) {}

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

  /// Counts one level of nesting for its lifetime.
  struct Deeper {
    TokenReader& reader;
    explicit Deeper(TokenReader& r) : reader(r) {
      constexpr int kMaxNesting = 100;
      if (++reader.nesting_ > kMaxNesting) {
        fail(reader.now().offset,
             std::string("nested deeper than ") + std::to_string(kMaxNesting) + " levels");
      }
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --reader.nesting_; }
  };

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int nesting_ = 0;
};

class ExpressionParser : protected TokenReader {
 protected:
  using Ex = Expression::Type;

  explicit ExpressionParser(std::string_view source) : TokenReader(source) {}

  ExpressionPtr parse_expression(bool with_ternary = true);
  /// Expressions with commas between them are a tuple; `may_be_empty` allows "()".
  ExpressionPtr parse_tuple(int64_t offset, bool with_ternary, bool may_be_empty);
  ExpressionPtr parse_filter(ExpressionPtr input, int64_t offset);

  // Whether these names were read since the flags were last cleared; they decide what a macro accepts.
  bool reads_varargs_ = false, reads_kwargs_ = false, reads_caller_ = false;

 private:
  using Rule = ExpressionPtr (ExpressionParser::*)();

  ExpressionPtr parse_logical(std::string_view word, Ex type, Rule inner);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  /// Consumes and returns the comparison operator at the current token; "" when there is none.
  std::string take_comparison();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_binary(std::initializer_list<std::string_view> ops, Rule inner);
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_filtered_unary();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_integer();
  ExpressionPtr parse_parenthesis();
  bool ends_tuple() const;
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_tuple_in_brackets(int64_t offset);
  /// Parses "(" ... ")" into `node`: positional operands and named arguments.
  void parse_arguments(Expression& node);
  ExpressionPtr parse_call(ExpressionPtr callee);
  std::string parse_dotted_name();
  ExpressionPtr parse_filters(ExpressionPtr node);
  bool starts_test_argument() const;
  ExpressionPtr parse_test(ExpressionPtr input);
};

}  // namespace fovea::text::jinja
