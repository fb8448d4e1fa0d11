#pragma once
// Syntax tree of a template. Positions are byte offsets into the (newline-normalized) source.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace fovea::text::jinja {

/// Thrown inside the interpreter, turned into an Error where it is entered. `offset` < 0: not known yet.
struct Failure {
  std::string message;
  int64_t offset = -1;
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Type : uint8_t {
    literal,  ///< value
    name,     ///< text
    list,     ///< operands
    tuple,    ///< operands
    dict,     ///< operands: key, value, key, value, ...
    negate,   ///< operands[0]
    plus,     ///< operands[0]
    logical_not,
    logical_and,
    logical_or,
    binary,     ///< text: + - * / // % **
    concat,     ///< any number of operands
    compare,    ///< operands[0] operators[0] operands[1] operators[1] ...
    ternary,    ///< condition, then, else (may be null)
    attribute,  ///< operands[0].text
    subscript,  ///< operands[0][operands[1]]
    slice,      ///< operands[0][start:stop:step], each may be null
    call,       ///< operands[0](operands[1..], named...)
    filter,     ///< operands[0] | text(operands[1..], named...); operands[0] null in a filter block
    test,       ///< operands[0] is text(operands[1..])
  };
  Type type;
  int depth = 1;  ///< depth of this subtree
  int64_t offset = 0;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread, spread_named;  ///< f(*spread, **spread_named)
};

/// Left side of an assignment: a name, a namespace member, or a tuple of targets.
struct Target {
  std::string name;
  std::string member;  ///< not empty: name.member
  std::vector<Target> parts;
  int64_t offset = 0;
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  ///< null: none
};

struct Statement {
  enum class Type : uint8_t {
    text,          ///< text
    output,        ///< value
    branch,        ///< branches, otherwise
    loop,          ///< target in value [if condition] [recursive]: body, otherwise
    assign,        ///< target = value
    assign_block,  ///< target = body, through the filters of value if there are any
    macro,         ///< text(parameters): body
    call_block,    ///< value is the call; parameters and body are its caller
    filter_block,  ///< value is a chain of filters over body
    scope,         ///< with: names and values in parameters; body
    evaluate,      ///< value, for its effects
    loop_break,
    loop_continue,
  };
  Type type = Type::text;
  bool recursive = false;
  // Special names that the body of a macro reads; they decide which extra arguments the macro accepts.
  bool catches_positional = false, catches_named = false, takes_caller = false;
  int64_t offset = 0;
  std::string text;
  Target target;
  ExpressionPtr value, condition;
  std::vector<std::pair<ExpressionPtr, Block>> branches;
  std::vector<Parameter> parameters;
  Block body, otherwise;
};

}  // namespace fovea::text::jinja
