#include "text/jinja_evaluator.h"

#include <algorithm>

namespace fovea::text::jinja {

using Ex = Expression::Type;

Value Evaluator::look_up(const ScopePtr& scope, const std::string& name) {
  for (const Scope* at = scope.get(); at; at = at->parent.get()) {
    rt_.charge(at->variables.size() + 1);
    for (const auto& [key, value] : at->variables) {
      if (key == name) return value;
    }
  }
  if (const Value* value = variables_.find(name)) return *value;
  if (is_global(name)) return Value::callable({name, Value(), nullptr});
  rt_.charge(name.size());
  return Value::undefined(std::string("'") + name + "' is undefined");
}

void Evaluator::define(Scope& scope, std::string_view name, Value value) {
  for (auto& [key, old] : scope.variables) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scope.variables.emplace_back(name, std::move(value));
}

ScopePtr Evaluator::child_of(const ScopePtr& scope) {
  rt_.charge(64);
  auto child = std::make_shared<Scope>();
  child->parent = scope;
  return child;
}

void Evaluator::arguments_of(const Expression& expression, const ScopePtr& scope, Arguments& out) {
  for (size_t i = 1; i < expression.operands.size(); ++i) {
    out.positional.push_back(evaluate(*expression.operands[i], scope));
  }
  for (const auto& [name, value] : expression.named)
    out.named.emplace_back(name, evaluate(*value, scope));
  if (expression.spread || expression.spread_named) spread_arguments(expression, scope, out);
}

void Evaluator::spread_arguments(const Expression& expression, const ScopePtr& scope, Arguments& out) {
  if (expression.spread) {
    const Value items = evaluate(*expression.spread, scope);
    rt_.offset = expression.offset;
    for (Value& item : rt_.iterate(items))
      out.positional.push_back(std::move(item));
  }
  if (!expression.spread_named) return;
  const Value items = evaluate(*expression.spread_named, scope);
  rt_.offset = expression.offset;
  if (!items.is(Kind::dict))
    rt_.fail(std::string("the argument after '**' must be a dict, not ") + std::string(type_name(items)));
  for (const auto& [key, value] : items.as_dict().items()) {
    const std::string& name = want_string(rt_, key, "a key of the dict after '**'");
    rt_.charge(out.named.size() + name.size());
    const auto same = [&](const auto& argument) { return argument.first == name; };
    if (std::any_of(out.named.begin(), out.named.end(), same))
      rt_.fail("argument '" + name + "' is given twice");
    out.named.emplace_back(name, value);
  }
}

Value Evaluator::call_parts(const Expression& expression, const ScopePtr& scope, Arguments& arguments) {
  Value callee = evaluate(*expression.operands[0], scope);
  arguments_of(expression, scope, arguments);
  return callee;
}

Value Evaluator::evaluate(const Expression& expression, const ScopePtr& scope) {
  if (expression.type == Ex::literal) return expression.value;
  if (expression.type == Ex::name) {
    rt_.offset = expression.offset;
    return look_up(scope, expression.text);
  }
  const Deeper deeper(rt_, depth_, rt_.limits().evaluation_depth);
  rt_.charge(16);
  switch (expression.type) {
    case Ex::list: return rt_.list(evaluate_all(expression, scope));
    case Ex::tuple: return rt_.tuple(evaluate_all(expression, scope));
    case Ex::dict: return dict(expression, scope);
    case Ex::logical_not: return Value::boolean(!truthy(evaluate(*expression.operands[0], scope)));
    case Ex::logical_and:
    case Ex::logical_or: return logical(expression, scope);
    case Ex::negate:
    case Ex::plus: return sign(expression, scope);
    case Ex::binary: return binary_operator(expression, scope);
    case Ex::concat: return concat(expression, scope);
    case Ex::compare: return comparison(expression, scope);
    case Ex::ternary: return ternary(expression, scope);
    case Ex::attribute: return attribute(expression, scope);
    case Ex::subscript: return subscript(expression, scope);
    case Ex::slice: return slice(expression, scope);
    case Ex::call: return call_expression(expression, scope);
    case Ex::filter: return filter(expression, scope);
    case Ex::test: return test(expression, scope);
    case Ex::literal:
    case Ex::name: break;
  }
  return Value();
}

std::vector<Value> Evaluator::evaluate_all(const Expression& expression, const ScopePtr& scope) {
  std::vector<Value> values;
  values.reserve(expression.operands.size());
  for (const ExpressionPtr& operand : expression.operands)
    values.push_back(evaluate(*operand, scope));
  rt_.offset = expression.offset;
  return values;
}

Value Evaluator::dict(const Expression& expression, const ScopePtr& scope) {
  Dict out;
  const std::vector<Value> parts = evaluate_all(expression, scope);
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    if (parts[i].is(Kind::list) || parts[i].is(Kind::dict)) rt_.fail("a list or dict can't be a key");
    out.set(parts[i], parts[i + 1]);
  }
  return rt_.dict(std::move(out));
}

Value Evaluator::logical(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.operands[0], scope);
  if (truthy(left) == (expression.type == Ex::logical_or)) return left;
  return evaluate(*expression.operands[1], scope);
}

Value Evaluator::sign(const Expression& expression, const ScopePtr& scope) {
  const Value value = evaluate(*expression.operands[0], scope);
  rt_.offset = expression.offset;
  if (expression.type == Ex::negate) return negate(rt_, value);
  if (!value.is_number()) want_int(rt_, value, "the operand of unary +");
  return value.is(Kind::boolean) ? Value::integer(value.as_int()) : value;
}

Value Evaluator::binary_operator(const Expression& expression, const ScopePtr& scope) {
  const Value left = evaluate(*expression.operands[0], scope);
  const Value right = evaluate(*expression.operands[1], scope);
  rt_.offset = expression.offset;
  return binary(rt_, expression.text, left, right);
}

Value Evaluator::concat(const Expression& expression, const ScopePtr& scope) {
  std::string text;
  for (const Value& value : evaluate_all(expression, scope)) {
    rt_.charge(value.weight());
    text += to_str(value);
    if (text.size() > rt_.limits().output_bytes) rt_.fail("the text is too large");
  }
  return rt_.string(std::move(text));
}

Value Evaluator::comparison(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.operands[0], scope);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.operands[i + 1], scope);
    rt_.offset = expression.offset;
    if (!compare(rt_, expression.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::ternary(const Expression& expression, const ScopePtr& scope) {
  if (truthy(evaluate(*expression.operands[0], scope))) return evaluate(*expression.operands[1], scope);
  if (expression.operands[2]) return evaluate(*expression.operands[2], scope);
  return Value::undefined("the inline if has no else, and its condition is false");
}

Value Evaluator::attribute(const Expression& expression, const ScopePtr& scope) {
  const Value object = evaluate(*expression.operands[0], scope);
  rt_.offset = expression.offset;
  return get_attribute(rt_, object, expression.text);
}

Value Evaluator::subscript(const Expression& expression, const ScopePtr& scope) {
  const Value object = evaluate(*expression.operands[0], scope);
  const Value key = evaluate(*expression.operands[1], scope);
  rt_.offset = expression.offset;
  return get_item(rt_, object, key);
}

Value Evaluator::slice(const Expression& expression, const ScopePtr& scope) {
  const Value object = evaluate(*expression.operands[0], scope);
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!expression.operands[i + 1]) continue;
    bounds[i] = evaluate(*expression.operands[i + 1], scope);
    given[i] = &bounds[i];
  }
  rt_.offset = expression.offset;
  return get_slice(rt_, object, given[0], given[1], given[2]);
}

Value Evaluator::call_expression(const Expression& expression, const ScopePtr& scope) {
  Arguments arguments;
  const Value callee = call_parts(expression, scope, arguments);
  rt_.offset = expression.offset;
  return call(callee, arguments);
}

Value Evaluator::filter(const Expression& expression, const ScopePtr& scope) {
  const Value input = evaluate(*expression.operands[0], scope);
  Arguments arguments;
  arguments_of(expression, scope, arguments);
  rt_.offset = expression.offset;
  return apply_filter(rt_, expression.text, input, arguments);
}

Value Evaluator::run_filters(const Expression& expression, const Value& input, const ScopePtr& scope) {
  const Deeper deeper(rt_, depth_, rt_.limits().evaluation_depth);
  const Value value = expression.operands[0] ? run_filters(*expression.operands[0], input, scope) : input;
  Arguments arguments;
  arguments_of(expression, scope, arguments);
  rt_.offset = expression.offset;
  return apply_filter(rt_, expression.text, value, arguments);
}

// "x is filter" / "x is test" ask whether a name is known.
Value Evaluator::test(const Expression& expression, const ScopePtr& scope) {
  const Value input = evaluate(*expression.operands[0], scope);
  Arguments arguments;
  arguments_of(expression, scope, arguments);
  rt_.offset = expression.offset;
  if (expression.text == "filter" || expression.text == "test") {
    const std::string& name = want_string(rt_, input, "the name");
    return Value::boolean(expression.text == "filter" ? is_filter(name) : is_test(name));
  }
  return Value::boolean(apply_test(rt_, expression.text, input, arguments.positional));
}

}  // namespace fovea::text::jinja
