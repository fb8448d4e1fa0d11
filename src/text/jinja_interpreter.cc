#include "text/jinja_interpreter.h"

#include <algorithm>

#include "text/jinja_evaluator.h"
#include "text/jinja_loop.h"

namespace fovea::text::jinja {

namespace {

using St = Statement::Type;

enum class Flow { next, loop_break, loop_continue };

// A macro, or the body of a call block: code and the scope it was written in.
struct Closure {
  const Statement* statement;
  ScopePtr scope;
};

class Interpreter final : public Evaluator {
 public:
  Interpreter(const Dict& variables, const Limits& limits) : Evaluator(variables, limits) {}

  std::string run(const Block& program) {
    execute(program, std::make_shared<Scope>());
    return std::move(out_);
  }

 private:
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
      case St::evaluate: evaluate(*statement.value, scope); return Flow::next;
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

  // Captures the output of a block as a text of its own.
  Flow capture(const Block& block, const ScopePtr& scope, std::string& text) {
    std::string outer;
    outer.swap(out_);
    const Flow flow = execute(block, scope);
    text = std::move(out_);
    out_ = std::move(outer);
    return flow;
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
    // Values are evaluated in the outer scope and don't see each other.
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
    bool completed = false;
    for (; state->index < state->items.size(); ++state->index) {
      rt_.step();
      const ScopePtr inner = child_of(scope);
      define(*inner, "loop", Value::loop(state));
      assign(inner, statement.target, state->items[state->index]);
      const Flow flow = execute(statement.body, inner);
      if (flow == Flow::loop_break) break;
      completed |= flow == Flow::next;
    }
    // As in jinja2, else also runs after a loop in which every iteration ended early.
    if (!completed) execute(statement.otherwise, child_of(scope));
  }

  // ---- macros
  Value new_closure(const Statement& statement, const ScopePtr& scope, std::string name) {
    rt_.charge(64);
    // Scopes hold the macros defined in them; values don't own their closures, so no cycle owns itself.
    closures_.push_back({&statement, scope});
    return Value::callable({std::move(name), Value(), &closures_.back(), &statement});
  }

  // As jinja2's Macro: extra arguments go to varargs and kwargs if the body reads them.
  void bind_parameters(const Statement& macro, const std::string& name, const Arguments& arguments,
                       const ScopePtr& inner) {
    const auto& parameters = macro.parameters;
    std::vector<bool> used(arguments.named.size());
    const auto take = [&](std::string_view wanted) -> const Value* {
      for (size_t k = 0; k < used.size(); ++k) {
        if (used[k] || arguments.named[k].first != wanted) continue;
        used[k] = true;
        return &arguments.named[k].second;
      }
      return nullptr;
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      if (i < arguments.positional.size()) {
        define(*inner, parameter.name, arguments.positional[i]);
      } else if (const Value* value = take(parameter.name)) {
        define(*inner, parameter.name, *value);
      } else if (parameter.fallback) {
        define(*inner, parameter.name, evaluate(*parameter.fallback, inner));
      } else {
        define(*inner, parameter.name,
               Value::undefined("parameter '" + parameter.name + "' was not provided"));
      }
    }
    bind_special(macro, name, arguments, used, inner);
  }

  void bind_special(const Statement& macro, const std::string& name, const Arguments& arguments,
                    const std::vector<bool>& used, const ScopePtr& inner) {
    Dict rest;
    for (size_t k = 0; k < used.size(); ++k) {
      const auto& [key, value] = arguments.named[k];
      if (used[k]) continue;
      if (key == "caller" && macro.takes_caller) {
        define(*inner, "caller", value);
      } else if (macro.catches_named) {
        rest.set(rt_.string(key), value);
      } else if (key == "caller") {
        rt_.fail(std::string("macro '") + name +
                 "' never calls caller(), so a 'call' block has no effect on it");
      } else {
        rt_.fail(std::string("macro '") + name + "' has no argument '" + key +
                 "', or it is given by position too");
      }
    }
    if (macro.catches_named) define(*inner, "kwargs", rt_.dict(std::move(rest)));
    const size_t taken = std::min(arguments.positional.size(), macro.parameters.size());
    if (macro.catches_positional) {
      define(*inner, "varargs",
             rt_.tuple({arguments.positional.begin() + static_cast<std::ptrdiff_t>(taken),
                        arguments.positional.end()}));
    } else if (taken < arguments.positional.size()) {
      rt_.fail(std::string("macro '") + name + "' takes at most " + std::to_string(macro.parameters.size()) +
               " arguments, " + std::to_string(arguments.positional.size()) + " were given");
    }
  }

  Value call_closure(const Closure& closure, const std::string& name, const Arguments& arguments) {
    const Deeper deeper(rt_, macro_depth_, rt_.limits().macro_depth);
    const ScopePtr inner = child_of(closure.scope);
    bind_parameters(*closure.statement, name, arguments, inner);
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
  Value call(const Value& callee, const Arguments& arguments) override {
    rt_.step();
    if (callee.is(Kind::undefined)) rt_.fail(callee.undefined_message());
    if (callee.is(Kind::loop)) return recurse(callee.as_loop(), arguments);
    if (callee.is(Kind::joiner)) return call_joiner(rt_, callee, arguments);
    if (!callee.is(Kind::callable))
      rt_.fail(std::string("'") + std::string(type_name(callee)) + "' object is not callable");
    const Callable& function = callee.as_callable();
    if (function.macro)
      return call_closure(*static_cast<const Closure*>(function.macro), function.name, arguments);
    if (function.self.is(Kind::loop)) {
      LoopState& state = function.self.as_loop();
      return function.name == "cycle" ? cycle(state, arguments) : changed(state, arguments);
    }
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

  Value changed(LoopState& state, const Arguments& arguments) {
    if (!arguments.named.empty()) rt_.fail("changed takes no named arguments");
    std::string now;
    for (const Value& value : arguments.positional) {
      rt_.charge(value.weight());
      now += to_repr(value) + ',';
    }
    const bool differs = state.changed != now;
    state.changed = rt_.string(std::move(now)).as_string();
    return Value::boolean(differs);
  }

  Value cycle(const LoopState& state, const Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty())
      rt_.fail("cycle needs positional arguments");
    return arguments.positional[state.index % arguments.positional.size()];
  }

  std::deque<Closure> closures_;
  std::vector<ScopePtr> recursive_scopes_;  // of loops that can be called
  std::string out_;
  int macro_depth_ = 0;
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
