#include "text/jinja_interpreter.h"

#include <algorithm>

#include "text/jinja_loop.h"

namespace fovea::text::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // names live in the syntax tree
};

namespace {

using ScopePtr = std::shared_ptr<Scope>;
using Ex = Expression::Type;
using St = Statement::Type;

enum class Flow { next, loop_break, loop_continue };

// A macro, or the body of a call block: code and the scope it was written in.
struct Closure {
  const Statement* statement;
  ScopePtr scope;
};

class Interpreter {
 public:
  Interpreter(const Dict& variables, const Limits& limits) : rt_(limits), variables_(variables) {}

  std::string run(const Block& program) {
    execute(program, std::make_shared<Scope>());
    return std::move(out_);
  }

 private:
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

  // ---- scopes
  Value look_up(const ScopePtr& scope, const std::string& name) {
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

  static void define(Scope& scope, std::string_view name, Value value) {
    for (auto& [key, old] : scope.variables) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    scope.variables.emplace_back(name, std::move(value));
  }

  void assign(const ScopePtr& scope, const Target& target, const Value& value) {
    if (!target.parts.empty()) {
      const std::vector<Value> items = rt_.iterate(value);
      if (items.size() != target.parts.size()) {
        rt_.offset = target.offset;
        rt_.fail(std::string("cannot unpack ") + std::to_string(items.size()) + " values into " +
                 std::to_string(target.parts.size()) + " names");
      }
      for (size_t i = 0; i < items.size(); ++i)
        assign(scope, target.parts[i], items[i]);
    } else if (target.member.empty()) {
      define(*scope, target.name, value);
    } else {
      const Value object = look_up(scope, target.name);
      rt_.offset = target.offset;
      if (!object.is(Kind::name_space)) rt_.fail(std::string("'") + target.name + "' is not a namespace");
      auto& members = object.as_namespace().members;
      rt_.charge(members.size());
      const auto it = std::find_if(members.begin(), members.end(),
                                   [&](const auto& member) { return member.first == target.member; });
      if (it != members.end()) {
        it->second = value;
      } else {
        members.emplace_back(target.member, value);
      }
    }
  }

  // ---- statements
  void emit(std::string_view text) {
    if (out_.size() + text.size() > rt_.limits().output_bytes) {
      rt_.fail(std::string("the output is larger than ") + std::to_string(rt_.limits().output_bytes >> 20) +
               " MiB");
    }
    out_ += text;
  }

  Flow execute(const Block& block, const ScopePtr& scope) {
    const Deeper deeper(rt_, depth_, rt_.limits().evaluation_depth);
    for (const Statement& statement : block) {
      const Flow flow = execute(statement, scope);
      if (flow != Flow::next) return flow;
    }
    return Flow::next;
  }

  Flow execute(const Statement& statement, const ScopePtr& scope) {
    rt_.offset = statement.offset;
    rt_.step();
    switch (statement.type) {
      case St::text: emit(statement.text); return Flow::next;
      case St::output: output(*statement.value, scope); return Flow::next;
      case St::branch: return branch(statement, scope);
      case St::loop: loop(statement, scope, evaluate(*statement.value, scope), 0); return Flow::next;
      case St::assign: assign(scope, statement.target, evaluate(*statement.value, scope)); return Flow::next;
      case St::assign_block: return assign_block(statement, scope);
      case St::macro:
        define(*scope, statement.text, new_closure(statement, scope, statement.text));
        return Flow::next;
      case St::call_block: call_block(statement, scope); return Flow::next;
      case St::filter_block: return filter_block(statement, scope);
      case St::scope: return with_scope(statement, scope);
      case St::loop_break: return Flow::loop_break;
      case St::loop_continue: return Flow::loop_continue;
    }
    return Flow::next;
  }

  void output(const Expression& expression, const ScopePtr& scope) {
    const Value value = evaluate(expression, scope);
    rt_.offset = expression.offset;
    if (value.is(Kind::string)) {
      emit(value.as_string());
    } else {
      rt_.charge(value.weight());
      emit(to_str(value));
    }
  }

  Flow branch(const Statement& statement, const ScopePtr& scope) {
    for (const auto& [condition, body] : statement.branches) {
      if (truthy(evaluate(*condition, scope))) return execute(body, scope);
    }
    return execute(statement.otherwise, scope);
  }

  // The output of a block as a text of its own.
  Flow capture(const Block& block, const ScopePtr& scope, std::string& text) {
    std::string outer;
    outer.swap(out_);
    const Flow flow = execute(block, scope);
    text = std::move(out_);
    out_ = std::move(outer);
    return flow;
  }

  ScopePtr child_of(const ScopePtr& scope) {
    rt_.charge(64);
    auto child = std::make_shared<Scope>();
    child->parent = scope;
    return child;
  }

  Flow assign_block(const Statement& statement, const ScopePtr& scope) {
    std::string text;
    const Flow flow = capture(statement.body, child_of(scope), text);
    if (flow != Flow::next) return flow;
    Value value = rt_.string(std::move(text));
    if (statement.value) value = run_filters(*statement.value, value, scope);
    assign(scope, statement.target, value);
    return Flow::next;
  }

  Flow filter_block(const Statement& statement, const ScopePtr& scope) {
    std::string text;
    const Flow flow = capture(statement.body, child_of(scope), text);
    if (flow != Flow::next) return flow;
    emit(to_str(run_filters(*statement.value, rt_.string(std::move(text)), scope)));
    return Flow::next;
  }

  Flow with_scope(const Statement& statement, const ScopePtr& scope) {
    const ScopePtr inner = child_of(scope);
    // Values see the scope outside, not each other.
    for (const Parameter& parameter : statement.parameters) {
      define(*inner, parameter.name, evaluate(*parameter.fallback, scope));
    }
    return execute(statement.body, inner);
  }

  std::vector<Value> loop_items(const Statement& statement, const ScopePtr& scope, const Value& iterable) {
    std::vector<Value> items = rt_.iterate(iterable);
    if (!statement.condition) return items;
    std::vector<Value> kept;
    for (Value& item : items) {
      rt_.step();
      const ScopePtr inner = child_of(scope);
      assign(inner, statement.target, item);
      if (truthy(evaluate(*statement.condition, inner))) kept.push_back(std::move(item));
    }
    return kept;
  }

  void loop(const Statement& statement, const ScopePtr& scope, const Value& iterable, int depth) {
    rt_.offset = statement.offset;
    auto state = std::make_shared<LoopState>();
    state->items = loop_items(statement, scope, iterable);
    state->depth = depth;
    for (const Value& item : state->items)
      state->nesting = std::max(state->nesting, item.nesting() + 1);
    if (statement.recursive) {
      state->statement = &statement;
      state->scope = recursive_scopes_.size();
      recursive_scopes_.push_back(scope);
    }
    for (; state->index < state->items.size(); ++state->index) {
      rt_.step();
      const ScopePtr inner = child_of(scope);
      define(*inner, "loop", Value::loop(state));
      assign(inner, statement.target, state->items[state->index]);
      if (execute(statement.body, inner) == Flow::loop_break) break;
    }
    if (state->items.empty()) execute(statement.otherwise, child_of(scope));
  }

  // ---- macros
  Value new_closure(const Statement& statement, const ScopePtr& scope, std::string name) {
    rt_.charge(64);
    // Scopes hold the macros defined in them, so values only refer to closures: no circle owns itself.
    closures_.push_back({&statement, scope});
    return Value::callable({std::move(name), Value(), &closures_.back()});
  }

  void bind_parameters(const Closure& closure, const std::string& name, const Arguments& arguments,
                       const ScopePtr& inner) {
    const auto& parameters = closure.statement->parameters;
    if (arguments.positional.size() > parameters.size()) {
      rt_.fail(std::string("'") + name + "' takes at most " + std::to_string(parameters.size()) +
               " arguments, " + std::to_string(arguments.positional.size()) + " were given");
    }
    for (const auto& [key, value] : arguments.named) {
      const auto it = std::find_if(parameters.begin(), parameters.end(),
                                   [&, &wanted = key](const Parameter& p) { return p.name == wanted; });
      if (it == parameters.end() && key != "caller")
        rt_.fail(std::string("'") + name + "' has no argument '" + key + "'");
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string& parameter = parameters[i].name;
      const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                      [&](const auto& argument) { return argument.first == parameter; });
      if (i < arguments.positional.size()) {
        if (named != arguments.named.end())
          rt_.fail(std::string("'") + name + "' got two values for argument '" + parameter + "'");
        define(*inner, parameter, arguments.positional[i]);
      } else if (named != arguments.named.end()) {
        define(*inner, parameter, named->second);
      } else if (parameters[i].fallback) {
        define(*inner, parameter, evaluate(*parameters[i].fallback, inner));
      } else {
        define(*inner, parameter, Value::undefined("parameter '" + parameter + "' was not provided"));
      }
    }
  }

  Value call_closure(const Closure& closure, const std::string& name, const Arguments& arguments) {
    const Deeper deeper(rt_, macro_depth_, rt_.limits().macro_depth);
    const ScopePtr inner = child_of(closure.scope);
    bind_parameters(closure, name, arguments, inner);
    for (const auto& [key, value] : arguments.named) {
      if (key == "caller") define(*inner, "caller", value);
    }
    std::string text;
    capture(closure.statement->body, inner, text);
    return rt_.string(std::move(text));
  }

  void call_block(const Statement& statement, const ScopePtr& scope) {
    Arguments arguments;
    const Value callee = call_parts(*statement.value, scope, arguments);
    arguments.named.emplace_back("caller", new_closure(statement, scope, "caller"));
    rt_.offset = statement.offset;
    const Value value = call(callee, arguments);
    rt_.charge(value.weight());
    emit(to_str(value));
  }

  // ---- calls
  Value call(const Value& callee, const Arguments& arguments) {
    rt_.step();
    if (callee.is(Kind::undefined)) rt_.fail(callee.undefined_message());
    if (callee.is(Kind::loop)) return recurse(callee.as_loop(), arguments);
    if (!callee.is(Kind::callable))
      rt_.fail(std::string("'") + std::string(type_name(callee)) + "' object is not callable");
    const Callable& function = callee.as_callable();
    if (function.macro)
      return call_closure(*static_cast<const Closure*>(function.macro), function.name, arguments);
    if (function.self.is(Kind::loop)) return cycle(function.self.as_loop(), arguments);
    if (!function.self.is(Kind::undefined)) return call_method(rt_, function.self, function.name, arguments);
    return call_global(rt_, function.name, arguments);
  }

  Value recurse(const LoopState& state, const Arguments& arguments) {
    const auto args = bind(rt_, "loop", arguments, {"iterable"});
    if (!state.statement) rt_.fail("only a loop with 'recursive' can be called");
    if (!args[0]) rt_.fail("loop needs an argument");
    const Deeper deeper(rt_, macro_depth_, rt_.limits().macro_depth);
    std::string outer;
    outer.swap(out_);
    const ScopePtr scope = recursive_scopes_[state.scope];
    loop(*state.statement, scope, *args[0], state.depth + 1);
    Value text = rt_.string(std::move(out_));
    out_ = std::move(outer);
    return text;
  }

  Value cycle(const LoopState& state, const Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty())
      rt_.fail("cycle needs positional arguments");
    return arguments.positional[state.index % arguments.positional.size()];
  }

  void arguments_of(const Expression& expression, const ScopePtr& scope, Arguments& out) {
    for (size_t i = 1; i < expression.operands.size(); ++i) {
      out.positional.push_back(evaluate(*expression.operands[i], scope));
    }
    for (const auto& [name, value] : expression.named)
      out.named.emplace_back(name, evaluate(*value, scope));
  }

  Value call_parts(const Expression& expression, const ScopePtr& scope, Arguments& arguments) {
    Value callee = evaluate(*expression.operands[0], scope);
    arguments_of(expression, scope, arguments);
    return callee;
  }

  // ---- expressions
  Value evaluate(const Expression& expression, const ScopePtr& scope) {
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

  std::vector<Value> evaluate_all(const Expression& expression, const ScopePtr& scope) {
    std::vector<Value> values;
    values.reserve(expression.operands.size());
    for (const ExpressionPtr& operand : expression.operands)
      values.push_back(evaluate(*operand, scope));
    rt_.offset = expression.offset;
    return values;
  }

  Value dict(const Expression& expression, const ScopePtr& scope) {
    Dict out;
    const std::vector<Value> parts = evaluate_all(expression, scope);
    for (size_t i = 0; i + 1 < parts.size(); i += 2) {
      if (parts[i].is(Kind::list) || parts[i].is(Kind::dict)) rt_.fail("a list or dict can't be a key");
      out.set(parts[i], parts[i + 1]);
    }
    return rt_.dict(std::move(out));
  }

  Value logical(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(*expression.operands[0], scope);
    if (truthy(left) == (expression.type == Ex::logical_or)) return left;
    return evaluate(*expression.operands[1], scope);
  }

  Value sign(const Expression& expression, const ScopePtr& scope) {
    const Value value = evaluate(*expression.operands[0], scope);
    rt_.offset = expression.offset;
    if (expression.type == Ex::negate) return negate(rt_, value);
    if (!value.is_number()) want_int(rt_, value, "the operand of unary +");
    return value.is(Kind::boolean) ? Value::integer(value.as_int()) : value;
  }

  Value binary_operator(const Expression& expression, const ScopePtr& scope) {
    const Value left = evaluate(*expression.operands[0], scope);
    const Value right = evaluate(*expression.operands[1], scope);
    rt_.offset = expression.offset;
    return binary(rt_, expression.text, left, right);
  }

  Value concat(const Expression& expression, const ScopePtr& scope) {
    std::string text;
    for (const Value& value : evaluate_all(expression, scope)) {
      rt_.charge(value.weight());
      text += to_str(value);
      if (text.size() > rt_.limits().output_bytes) rt_.fail("the text is too large");
    }
    return rt_.string(std::move(text));
  }

  Value comparison(const Expression& expression, const ScopePtr& scope) {
    Value left = evaluate(*expression.operands[0], scope);
    for (size_t i = 0; i < expression.operators.size(); ++i) {
      Value right = evaluate(*expression.operands[i + 1], scope);
      rt_.offset = expression.offset;
      if (!compare(rt_, expression.operators[i], left, right)) return Value::boolean(false);
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  Value ternary(const Expression& expression, const ScopePtr& scope) {
    if (truthy(evaluate(*expression.operands[0], scope))) return evaluate(*expression.operands[1], scope);
    if (expression.operands[2]) return evaluate(*expression.operands[2], scope);
    return Value::undefined("the inline if has no else, and its condition is false");
  }

  Value attribute(const Expression& expression, const ScopePtr& scope) {
    const Value object = evaluate(*expression.operands[0], scope);
    rt_.offset = expression.offset;
    return get_attribute(rt_, object, expression.text);
  }

  Value subscript(const Expression& expression, const ScopePtr& scope) {
    const Value object = evaluate(*expression.operands[0], scope);
    const Value key = evaluate(*expression.operands[1], scope);
    rt_.offset = expression.offset;
    return get_item(rt_, object, key);
  }

  Value slice(const Expression& expression, const ScopePtr& scope) {
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

  Value call_expression(const Expression& expression, const ScopePtr& scope) {
    Arguments arguments;
    const Value callee = call_parts(expression, scope, arguments);
    rt_.offset = expression.offset;
    return call(callee, arguments);
  }

  Value filter(const Expression& expression, const ScopePtr& scope) {
    const Value input = evaluate(*expression.operands[0], scope);
    Arguments arguments;
    arguments_of(expression, scope, arguments);
    rt_.offset = expression.offset;
    return apply_filter(rt_, expression.text, input, arguments);
  }

  // A chain of filters whose innermost input is `input`.
  Value run_filters(const Expression& expression, const Value& input, const ScopePtr& scope) {
    const Deeper deeper(rt_, depth_, rt_.limits().evaluation_depth);
    const Value value = expression.operands[0] ? run_filters(*expression.operands[0], input, scope) : input;
    Arguments arguments;
    arguments_of(expression, scope, arguments);
    rt_.offset = expression.offset;
    return apply_filter(rt_, expression.text, value, arguments);
  }

  // "x is filter" / "x is test" ask whether a name is known.
  Value test(const Expression& expression, const ScopePtr& scope) {
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

  Runtime rt_;
  const Dict& variables_;
  std::deque<Closure> closures_;
  std::vector<ScopePtr> recursive_scopes_;  // of loops that can be called
  std::string out_;
  int depth_ = 0;
  int macro_depth_ = 0;

 public:
  int64_t offset() const { return rt_.offset; }
};

}  // namespace

std::string render(const Block& program, const Dict& variables, const Limits& limits) {
  Interpreter interpreter(variables, limits);
  try {
    return interpreter.run(program);
  } catch (Failure& failure) {
    if (failure.offset < 0) failure.offset = interpreter.offset();
    throw;
  }
}

}  // namespace fovea::text::jinja
