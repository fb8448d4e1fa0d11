#pragma once
// First half of the interpreter: scopes and the evaluation of expressions.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace fovea::text::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // names live in the syntax tree
};
using ScopePtr = std::shared_ptr<Scope>;

class Evaluator {
 public:
  int64_t offset() const { return rt_.offset; }

 protected:
  Evaluator(const Dict& variables, const Limits& limits) : rt_(limits), variables_(variables) {}
  ~Evaluator() = default;

  /// Counts one level of nested evaluation for its lifetime.
  struct Deeper {
    int& depth;
    Deeper(const Runtime& rt, int& counter, int limit) : depth(counter) {
      if (depth >= limit)
        rt.fail(std::string("nested deeper than ") + std::to_string(limit) + " levels while running");
      ++depth;
    }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    ~Deeper() { --depth; }
  };

  virtual Value call(const Value& callee, const Arguments& arguments) = 0;

  ScopePtr child_of(const ScopePtr& scope);
  Value look_up(const ScopePtr& scope, const std::string& name);
  static void define(Scope& scope, std::string_view name, Value value);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  /// The callee of a call expression, and its arguments.
  Value call_parts(const Expression& expression, const ScopePtr& scope, Arguments& arguments);
  /// A chain of filters whose innermost input is `input`.
  Value run_filters(const Expression& expression, const Value& input, const ScopePtr& scope);

  Runtime rt_;
  const Dict& variables_;
  int depth_ = 0;

 private:
  std::vector<Value> evaluate_all(const Expression& expression, const ScopePtr& scope);
  void arguments_of(const Expression& expression, const ScopePtr& scope, Arguments& out);
  void spread_arguments(const Expression& expression, const ScopePtr& scope, Arguments& out);
  Value dict(const Expression& expression, const ScopePtr& scope);
  Value logical(const Expression& expression, const ScopePtr& scope);
  Value sign(const Expression& expression, const ScopePtr& scope);
  Value binary_operator(const Expression& expression, const ScopePtr& scope);
  Value concat(const Expression& expression, const ScopePtr& scope);
  Value comparison(const Expression& expression, const ScopePtr& scope);
  Value ternary(const Expression& expression, const ScopePtr& scope);
  Value attribute(const Expression& expression, const ScopePtr& scope);
  Value subscript(const Expression& expression, const ScopePtr& scope);
  Value slice(const Expression& expression, const ScopePtr& scope);
  Value call_expression(const Expression& expression, const ScopePtr& scope);
  Value filter(const Expression& expression, const ScopePtr& scope);
  Value test(const Expression& expression, const ScopePtr& scope);
};

}  // namespace fovea::text::jinja
